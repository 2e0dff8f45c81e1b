// The receiving end of a TCP flow: what has arrived, and when and what to acknowledge.
//
// Ranges beyond a hole are kept by their ends, each end naming the other, so that an arrival costs the same however
// much is missing. It sends nothing: the transport asks it, and forms packets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/core/transports/tcp_ack.hpp"

namespace dlcp::sim {

struct TcpReceiverSettings {
    std::uint32_t ack_every = 2;  // segments (RFC 5681 §4.2)
    // A segment that left so long after the one before is acknowledged at once: its sender timed out and waits for it
    // (Linux's quick acknowledgements).
    std::int64_t quick_after_ps = INT64_MAX;
    // DCTCP: one acknowledgement never covers marked and unmarked segments (RFC 8257 §3.2).
    bool per_state_echo = false;
};

class TcpReceiver {
public:
    TcpReceiver(const TcpReceiverSettings& settings, std::uint32_t segments)
        : settings_(&settings), segments_(segments) {}

    // Before a segment is handled: what waits must be acknowledged first, as its marks say otherwise.
    bool must_acknowledge_before(bool marked) const {
        return settings_->per_state_echo && pending_ > 0 && marked != marked_;
    }
    // True: the segment is new.
    bool handle_segment(std::uint32_t number, bool marked, std::int64_t sent_ps);
    // What has arrived is to be acknowledged now; if not, but `pending`, then before long.
    bool must_acknowledge() const { return at_once_ || pending_ >= settings_->ack_every; }
    bool pending() const { return pending_ > 0; }
    TcpAck take_ack();

    bool complete() const { return next_ == segments_; }

private:
    void insert(std::uint32_t number);
    void remember(TcpRange range);
    std::uint32_t& other_end(std::uint32_t number) { return other_end_[number & (other_end_.size() - 1)]; }
    void make_room(std::uint32_t number);

    const TcpReceiverSettings* settings_;
    std::uint32_t segments_;
    std::uint32_t next_ = 0;          // all below have arrived
    std::uint32_t highest_ = 0;       // none at or above has
    std::uint32_t acknowledged_ = 0;  // `next_` in the last acknowledgement
    std::uint32_t pending_ = 0;       // arrived since the last acknowledgement
    bool at_once_ = false;
    bool marked_ = false;
    bool duplicate_ = false;
    std::uint32_t duplicate_number_ = 0;
    std::int64_t echo_ps_ = 0;
    std::int64_t last_sent_ps_ = INT64_MAX;  // of what arrived last; nothing has: there is no gap
    std::array<TcpRange, 4> recent_;         // that grew last come first
    std::uint32_t recents_ = 0;
    std::vector<std::uint32_t> other_end_;  // by number; `none`: not here. Right at both ends of a range only
};

}  // namespace dlcp::sim

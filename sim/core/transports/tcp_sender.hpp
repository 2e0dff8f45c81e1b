// The sending end of a TCP flow: what is in flight, lost, to be sent next, and when to act without an acknowledgement.
//
// Loss is found by time (RACK, RFC 8985) from cumulative and selective acknowledgements, tails by a probe (TLP, same RFC),
// all else by a timeout (RFC 6298). During recovery proportional rate reduction (RFC 6937, with the conservative bound of
// RFC 9937) says how much may leave. A recovery that timestamps prove spurious is undone (Eifel, RFC 3522, RFC 4015).
//
// It is a pure state machine: given the time, acknowledgements and a free network card, it answers segments and a deadline.
// What an acknowledgement costs does not depend on the window: ranges that are known are skipped, and loss is looked
// for from the oldest transmission on, each of which is looked at once. Only a timeout walks the window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/transports/tcp_ack.hpp"
#include "sim/core/transports/tcp_window.hpp"

namespace dlcp::sim {

struct TcpSenderSettings {
    TcpWindowSettings window;
    std::int64_t min_rto_ps = 200'000'000'000;
    std::int64_t max_rto_ps = 120'000'000'000'000;
    // The longest that a receiver holds an acknowledgement back (RFC 8985 §7.2: WCDelAckT).
    std::int64_t max_ack_delay_ps = 0;
    std::int64_t min_probe_ps = 0;  // the least delay of a tail probe
    bool tail_probe = true;
    bool proportional = true;  // rate reduction; otherwise the new window holds at once
    bool pacing = false;
    double pacing_slow_start = 2;  // times window / smoothed round trip, as Linux has it
    double pacing_avoidance = 1.2;
};

// A ring that grows, for first-in-first-out use.
template <typename T>
class TcpQueue {
public:
    bool empty() const { return head_ == tail_; }
    T& front() { return items_[head_ & (items_.size() - 1)]; }
    void pop() { ++head_; }
    void push(const T& item) {
        if (tail_ - head_ == items_.size()) grow();
        items_[tail_++ & (items_.size() - 1)] = item;
    }
    void clear() { head_ = tail_; }

private:
    void grow() {
        std::vector<T> wider(items_.empty() ? 16 : items_.size() * 2);
        const std::size_t count = tail_ - head_;
        for (std::size_t i = 0; i < count; ++i) wider[i] = items_[(head_ + i) & (items_.size() - 1)];
        items_.swap(wider);
        head_ = 0;
        tail_ = count;
    }
    std::vector<T> items_;
    std::size_t head_ = 0;
    std::size_t tail_ = 0;
};

// What a connection knows of its path; outlives a flow if the next one takes the same connection.
struct TcpPath {
    TcpWindow window;
    std::int64_t srtt_ps = 0;  // 0: no sample yet
    std::int64_t rttvar_ps = 0;
    std::int64_t min_rtt_ps = INT64_MAX;
    bool reordering = false;  // seen on this path
    // So many quarters of the least round trip a segment may be late (RFC 8985 §6.2: RACK.reo_wnd_mult).
    std::uint32_t reorder_quarters = 1;
    std::uint32_t reorder_persist = 0;  // recoveries until that is 1 again

    // A round trip measured before any data left: by a handshake, or the connection is an old one.
    void start_rtt(std::int64_t rtt_ps);
};

class TcpSender {
public:
    TcpSender(const TcpSenderSettings& settings, const TcpPath& path, std::uint32_t segments)
        : settings_(&settings), path_(path), segments_(segments) {}

    // The next segment to leave now, or `none`: the window is full, all is sent, or pacing holds it back until `deadline_ps`.
    std::uint32_t next_segment(std::int64_t now_ps);
    // The segment given last had been sent before.
    bool retransmitted() const { return retransmitted_; }
    void handle_ack(std::int64_t now_ps, const TcpAck& ack);
    // When handle_deadline must be called; -1: never. Calling it early does nothing.
    std::int64_t deadline_ps() const;
    void handle_deadline(std::int64_t now_ps);
    // There is something to send, as far as windows go.
    bool can_send() const;
    bool done() const { return una_ == segments_; }

    const TcpPath& path() const { return path_; }
    // Segments that may be in flight.
    double window_packets() const { return state_ == State::recovery ? recovery_window_ : path_.window.packets(); }
    std::uint32_t in_flight() const { return in_flight_; }
    std::uint64_t timeouts() const { return timeouts_; }
    std::uint64_t probes() const { return probes_; }
    std::uint64_t recoveries() const { return recoveries_; }
    std::uint64_t undone() const { return undone_; }

private:
    enum class State : std::uint8_t { open, recovery, loss };

    struct Segment {
        std::int64_t sent_ps;        // last
        std::uint32_t transmission;  // last, counted over the flow
        std::uint32_t skip : 28;     // if sacked: no segment from here to there is not
        std::uint32_t sacked : 1;
        std::uint32_t lost : 1;  // and not sent again yet
        std::uint32_t retransmitted : 1;
        std::uint32_t : 1;
    };
    static_assert(sizeof(Segment) == 16);
    struct Transmission {
        std::uint32_t segment;
        std::uint32_t transmission;
    };

    Segment& at(std::uint32_t number) { return ring_[number & (ring_.size() - 1)]; }
    std::uint32_t first_unsacked(std::uint32_t number);
    bool current(const Transmission& sent);
    void transmit(std::int64_t now_ps, std::uint32_t number, bool again);
    void deliver(std::int64_t now_ps, std::uint32_t number, std::int64_t echo_ps);
    void take_rtt(std::int64_t rtt_ps);
    void handle_probe_ack(const TcpAck& ack);
    std::int64_t reorder_window_ps() const;
    void mark_lost(std::uint32_t number);
    std::uint32_t detect_losses(std::int64_t now_ps);
    void enter_recovery();
    void start_stamp();
    void leave_recovery();
    void undo();
    void reduce(std::uint32_t delivered, bool conservative);
    void time_out(std::int64_t now_ps);
    std::int64_t rto_ps() const;
    std::int64_t rto_deadline_ps() const;
    std::int64_t probe_deadline_ps() const;
    void pace(std::int64_t now_ps);

    const TcpSenderSettings* settings_;
    TcpPath path_;
    std::uint32_t segments_;
    std::uint32_t una_ = 0;  // all below are acknowledged
    std::uint32_t nxt_ = 0;  // none at or above was sent
    // Of [una_, nxt_): in flight, lost or sacked; their sum is all of them.
    std::uint32_t in_flight_ = 0;
    std::uint32_t lost_ = 0;
    std::uint32_t sacked_ = 0;
    std::vector<Segment> ring_;
    TcpQueue<Transmission> order_;    // of transmission; entries that are over are skipped
    TcpQueue<std::uint32_t> resend_;  // lost segments, likewise

    State state_ = State::open;
    bool retransmitted_ = false;
    std::uint32_t high_ = 0;     // recovery is over when this is acknowledged
    bool lost_beyond_ = false;   // a segment at or above it was lost since
    std::uint32_t cwr_end_ = 0;  // no further reaction to marks, no growth, until this is
    std::uint32_t round_end_ = 0;
    std::uint32_t round_flight_ = 0;  // most in flight in this round and the last
    std::uint32_t last_round_flight_ = 0;

    // RACK
    std::uint32_t transmissions_ = 0;
    std::uint32_t rack_transmission_ = 0;  // of those delivered, the one that left last …
    std::int64_t rack_rtt_ps_ = 0;         // … and how long it took
    std::uint32_t rack_forward_ = 0;       // one past the highest segment delivered
    std::int64_t reorder_deadline_ps_ = -1;
    std::uint32_t duplicate_round_end_ = 0;
    // Of the acknowledgement at hand
    std::int64_t first_rtt_ps_ = -1;
    std::int64_t last_rtt_ps_ = -1;
    std::uint32_t forward_before_ = 0;
    std::uint32_t delivered_ = 0;

    // Tail probe
    std::int64_t probe_base_ps_ = -1;
    std::uint32_t probe_end_ = none;
    bool probe_due_ = false;
    std::int64_t probe_sent_ps_ = 0;
    bool probe_again_ = false;  // the probe was a retransmission

    // Timeout
    std::int64_t rto_base_ps_ = -1;
    std::uint32_t backoff_ = 0;
    std::int64_t smooth_deviation_ps_ = 0;
    std::int64_t round_deviation_ps_ = 0;

    // Recovery
    double recovery_window_ = 0;
    std::uint32_t recovery_flight_ = 1;
    std::uint64_t recovery_delivered_ = 0;
    std::uint64_t recovery_sent_ = 0;
    std::int64_t first_resent_ps_ = -1;  // in this recovery
    std::uint32_t resent_end_ = 0;       // one past the highest segment sent again
    TcpWindow before_;

    std::int64_t pace_ps_ = 0;  // no segment before
    bool paced_ = false;        // one is held back

    std::uint64_t timeouts_ = 0;
    std::uint64_t probes_ = 0;
    std::uint64_t recoveries_ = 0;
    std::uint64_t undone_ = 0;
};

}  // namespace dlcp::sim

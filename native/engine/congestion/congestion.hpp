// Congestion control behind one small interface; state per session, kept across messages.
//
// A controller takes the summary of one acknowledgement and answers how much may be in flight and at which rate it
// leaves. It knows no messages, paths or clocks. The caller also applies the receiver's buffer limit.
//
// A new controller is one file beside this one, its factory's declaration and a row in controllers.hpp.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/units.hpp"

namespace dlcp {

struct EndpointConfig;

struct AckSample {
    Time now{0};
    Bytes acked{0};        // newly acknowledged, datagram bytes
    Bytes lost{0};         // newly declared lost
    bool trimmed = false;  // they were trimmed: a full queue
    std::uint32_t acked_packets = 0;
    std::uint32_t ce_packets = 0;  // newly acknowledged with congestion experienced
    Bytes in_flight{0};            // before this acknowledgement
    Duration rtt{0};               // smoothed
    Duration base_rtt{0};          // the shortest of the session
    Duration queue_delay{-1};      // median one-way delay above its minimum; negative: no sample
    bool alone = false;            // no other session of ours is known to share the path's ends
    bool round_over = false;       // a packet sent after the last round's end was acknowledged
};

class CongestionControl {
public:
    virtual ~CongestionControl() = default;
    virtual void on_ack(const AckSample& sample) = 0;
    // A probe went unanswered for `timeouts` probe timeouts in a row.
    virtual void on_timeout(std::uint32_t timeouts) = 0;
    // Most bytes in flight.
    virtual Bytes window() const = 0;
    // Zero: unpaced.
    virtual Rate pacing_rate(Duration smoothed_rtt) const = 0;

    // Whether this sender keeps to the turns that a receiver gives under an incast (turn_scheduler.hpp). It has its
    // turn: so much may be in flight, which fills the last hop alone. And it is over; `goes_on`: there is more to send,
    // and nobody gives turns any more.
    virtual bool takes_turns() const { return false; }
    virtual void begin_turn(Time, Bytes /*turn*/) {}
    virtual void end_turn(bool /*goes_on*/) {}
};

// For a private channel of this capacity: the path is not shared, so there is nothing to probe for.
std::unique_ptr<CongestionControl> make_channel_control(Bytes channel_buffer);

}  // namespace dlcp

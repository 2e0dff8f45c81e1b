// What transports carry: flows, the same for all of them, and what became of them.
#pragma once

#include <cstdint>

#include "sim/core/packet.hpp"

namespace dlcp::sim {

struct Flow {
    std::uint32_t source = 0;  // hosts
    std::uint32_t destination = 0;
    std::uint64_t bytes = 0;
    std::int64_t start_ps = 0;       // -1: when its task starts (tasks.hpp)
    std::uint8_t traffic_class = 0;  // 0..6; transports that know no classes ignore it
    // dlcp only: how the message is delivered (engine/event.hpp: Delivery), what may be abandoned, what is critical.
    float loss_ratio = 0;      // > 0: bounded
    float critical_ratio = 1;  // of the blocks; the others are droppable, of random importance
    std::int64_t patience_ps = -1;
    std::uint32_t task = none;  // set by the task graph
    std::uint32_t label = 0;    // the workload's own: layer, job, …
};

// Filled in as a flow goes on; the receiver's half by the receiver's thread, the sender's by the sender's.
struct FlowResult {
    // Receiver
    std::int64_t delivered_ps = -1;  // the last byte that will come is there; -1: not yet
    std::uint64_t delivered_bytes = 0;
    std::uint64_t abandoned_bytes = 0;
    // Sender
    std::int64_t started_ps = -1;
    std::int64_t acknowledged_ps = -1;  // the sender knows
    std::uint64_t sent_packets = 0;     // data packets, first transmissions
    std::uint64_t retransmitted_packets = 0;
    std::uint64_t timeouts = 0;
};

}  // namespace dlcp::sim

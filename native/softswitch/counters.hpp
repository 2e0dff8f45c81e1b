// What the software switch counts, since its start. The core adds; other code copies.
#pragma once

#include <array>
#include <cstdint>

#include "switch/policy.hpp"

namespace dlcp::softswitch {

// The fate of a frame at its output port.
enum class Fate : std::uint8_t {
    kept,               // joined its queue as it came
    marked,             // joined it with CE
    trimmed,            // joined the trimmed packets' queue, cut
    dropped_threshold,  // its queue was deeper than the policy allows its level
    dropped_buffer,     // no room in port_bytes or shared_bytes
    dropped_trimmed,    // was to be trimmed, and there was no room for the rest
                        // either
    dropped_memory,     // no frame memory left: the policy allows more than the
                        // switch has
};
inline constexpr std::size_t fates = 7;

struct Count {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;

    void add(std::uint64_t more_bytes) {
        ++packets;
        bytes += more_bytes;
    }
};

// Foreign frames, which have no importance, count as a level of their own, after those of the policy.
inline constexpr std::size_t foreign_level = switching::levels;
inline constexpr std::size_t counted_levels = switching::levels + 1;

// By class and level of the arriving frame; a trimmed frame counts with the bytes that joined the queue.
using Decisions = std::array<std::array<std::array<Count, fates>, counted_levels>, switching::traffic_classes>;

// Frames that never met a queue, of an input port but for `oversize` and `fault_out`.
struct Losses {
    std::uint64_t malformed = 0;    // no host would take it
    std::uint64_t oversize = 0;     // longer than the port it came by or was to leave
                                    // by: a super-packet of the kernel's
    std::uint64_t same_port = 0;    // its destination lies where it came from: nothing to do for a bridge
    std::uint64_t reserved = 0;     // 01-80-C2-00-00-0x, which no bridge forwards (IEEE 802.1Q, table 8-1)
    std::uint64_t no_port = 0;      // no port of the group is up, or there is no other port
    std::uint64_t own_address = 0;  // for a hub's address that is the switch's own, and not taken in; or from it
    std::uint64_t fault_in = 0;     // by a fault, when it came in
    std::uint64_t fault_out = 0;    // by a fault, after its time on the line
};

struct PortCounters {
    Count received;
    std::array<Count, switching::traffic_classes> sent;  // handed to the interface, by class of the queue
    std::array<std::uint64_t, switching::traffic_classes> dropped{};  // by class as they came, all fates that drop
    Decisions decisions{};
    Losses losses;
    std::uint64_t chosen = 0;  // packets for which this port was taken out of its group
};

}  // namespace dlcp::softswitch

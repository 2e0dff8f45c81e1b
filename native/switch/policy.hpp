// The policy of a switch: thresholds per class and importance, how a path is chosen, how its buffer is shared.
//
// Pure data. The same policy is rendered for P4, for switch operating systems, and read here by the software switch and
// by the simulator. A depth is what waits in a queue, the packet being transmitted not counted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace dlcp::switching {

inline constexpr std::size_t traffic_classes = 8;  // 7 is served first
// Droppable packets fall into levels by their importance (0..254), 32 values each; ECN-capable ones have their own.
inline constexpr std::size_t droppable_levels = 8;
inline constexpr std::size_t critical_level = droppable_levels;
inline constexpr std::size_t levels = droppable_levels + 1;
inline constexpr std::uint32_t never = UINT32_MAX;
inline constexpr std::uint16_t min_trimmed_bytes = 20;  // an IPv4 header must be left: RFC 791, 3.1
inline constexpr std::int8_t max_alpha_log2 = 10;       // 1/1024 to 1024; switches offer 1/128 to 8

// Of one class and level. Depths in bytes of the class's queue; a packet that finds more waiting meets this fate.
struct Thresholds {
    std::uint32_t mark_from_bytes =
        never;  // ECN-capable packets: marked with a probability that rises from 0 here …
    std::uint32_t mark_full_bytes = never;   // … to mark_ratio here; from here on all are. Equal: a step
    std::uint16_t mark_ratio = UINT16_MAX;   // of 65536
    std::uint32_t trim_above_bytes = never;  // trimmed, also where the buffer ends; never: at no end
    std::uint32_t drop_above_bytes = never;
};

struct ClassPolicy {
    std::array<Thresholds, levels> level;
};

enum class PathChoice : std::uint8_t {
    flow_hash,    // ECMP: one path per flow
    path_id,      // ECMP over the path id that the host wrote: the host sprays
    random,       // packet by packet
    round_robin,  // packet by packet
    adaptive,     // the shorter queue of two drawn at random, packet by packet
};

struct Policy {
    std::array<ClassPolicy, traffic_classes> classes;
    PathChoice path_choice = PathChoice::path_id;

    // Buffer. Per port, unless shared_bytes is set: then a class's queue may grow to alpha times what is free of the
    // switch's whole buffer (Choudhury and Hahne's dynamic thresholds), alpha = 2^shared_alpha_log2.
    std::uint32_t port_bytes = never;
    std::uint32_t shared_bytes = 0;
    std::int8_t shared_alpha_log2 = 0;

    // What is left of a trimmed packet on the wire, and the class it goes on in.
    std::uint16_t trimmed_bytes = 64;
    std::uint8_t trimmed_class = 7;
    // Of that class, how many packets leave in a row while other classes wait; then one of theirs does. 0: any number.
    std::uint8_t trimmed_run_packets = 0;

    // Priority flow control (IEEE 802.1Qbb): a class of one input that holds more is paused, below resume goes on.
    std::uint32_t pause_above_bytes = never;
    std::uint32_t resume_below_bytes = 0;

    // Empty if usable; otherwise a sentence that names the field, its value and the accepted range.
    std::string validate() const;
};

}  // namespace dlcp::switching

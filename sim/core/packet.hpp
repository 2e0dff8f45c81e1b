// A packet in the network, and what only some transports need of it.
//
// Times in the simulator are int64 picoseconds, named `_ps`; the engine's `Time` (nanoseconds) is another type, so
// the two do not mix.
#pragma once

#include <cstdint>

namespace dlcp::sim {

inline constexpr std::uint32_t none = UINT32_MAX;

// No flow starts, no fault comes and nothing computes later or longer than this, some 10 hours: half of what a packet's
// 56 bits can say.
inline constexpr std::int64_t latest_given_ps = std::int64_t{1} << 55;
// Nothing happens from here on, some 20 hours: what leaves before then arrives within the 56 bits. A packet of 65535
// bytes takes 2^49 ps at 1 kbit/s, the slowest link, whose delay is at most 2 * 10^13 ps.
inline constexpr std::int64_t end_of_time_ps = (std::int64_t{1} << 56) - (std::int64_t{1} << 50);

// What a packet is to the hosts; switches do not look. Transports give the values from `first_own` on a meaning.
enum PacketType : std::uint32_t {
    data_packet = 0,
    ack_packet = 1,
    nack_packet = 2,
    pull_packet = 3,
    first_own = 4
};

// 32 bytes: 24 of packet and the 8 of the one event that it waits for, so that moving a packet touches one line.
struct Packet {
    std::uint64_t at_ps : 56;             // when it reaches the far end of the link it is on
    std::uint64_t traffic_class : 3;      // 7 is served first
    std::uint64_t ecn_capable : 1;        // ECT: marked, not dropped
    std::uint64_t congestion_marked : 1;  // CE
    std::uint64_t trimmable : 1;
    std::uint64_t trimmed : 1;
    std::uint64_t reverse : 1;  // from the flow's destination to its source
    std::uint32_t next;         // chain: a port's queue, the free list
    std::uint32_t port;         // the link it crosses, or came by
    std::uint32_t flow;
    std::uint32_t destination : 24;  // host
    std::uint32_t importance : 8;    // of droppable packets, 0..254
    std::uint32_t number : 28;       // the transport's
    std::uint32_t type : 4;          // PacketType
    std::uint16_t wire_bytes;        // all that the link carries for it
    std::uint16_t path;              // path id, written by the host
};
static_assert(sizeof(Packet) == 32);

// Beside each packet; untouched by the network, but for `rank`, which ports that serve by rank read.
struct PacketExtra {
    std::int64_t time_ps = 0;  // the transport's: when sent, or an echo of it
    union {
        std::uint32_t words[5];  // the transport's: selective acknowledgements, credit, …
        struct {
            void* body;  // of an engine's packet: EngineBody
            std::uint32_t virtual_bytes;
            std::uint32_t source;  // host
        } engine;
    };
    std::uint32_t rank = 0;  // lower leaves first, at ports with Discipline::least_rank (pFabric: bytes left)

    PacketExtra() : words{} {}
};
static_assert(sizeof(PacketExtra) == 40 || sizeof(PacketExtra) == 32);

}  // namespace dlcp::sim

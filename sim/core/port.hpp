// The sending end of a link: its clock, its queues, its counters.
//
// What every hop touches fits a cache line; the queues are touched only while something waits.
#pragma once

#include <cstdint>

#include "sim/core/packet.hpp"
#include "switch/policy.hpp"

namespace dlcp::sim {

enum class Discipline : std::uint8_t {
    strict_priority,  // the highest class first, in a class first come, first served
    least_rank,       // PacketExtra::rank (pFabric); the switch policy's thresholds are not used, port_bytes is
};

struct alignas(64) Port {
    std::int64_t busy_until_ps = 0;
    std::uint64_t ps_per_byte_q16 = 0;  // picoseconds per byte, times 2^16
    std::int64_t delay_ps = 0;
    std::uint32_t to = none;  // node
    std::uint32_t waiting_bytes = 0;
    std::uint32_t fault = none;        // index into the domain's faults
    std::uint32_t shared = none;       // switch, for its shared buffer
    std::uint8_t waiting_classes = 0;  // bit c: class c waits
    std::uint8_t paused_classes = 0;   // by priority flow control
    std::uint8_t trimmed_run = 0;      // packets of the trimmed class that left in a row while others waited
    bool service_pending = false;      // an event comes when it is free
    bool traced = false;
    bool is_host = false;
    bool down = false;

    // Of 128 bits, since 64 KiB at 1 kbit/s are more than 2^64 of these.
    static std::int64_t transmit_ps(std::uint64_t bytes, std::uint64_t ps_per_byte_q16) {
        __extension__ using u128 = unsigned __int128;
        return static_cast<std::int64_t>((u128{bytes} * ps_per_byte_q16 + 0x8000) >> 16);
    }
    std::int64_t transmit_ps(std::uint32_t bytes) const { return transmit_ps(bytes, ps_per_byte_q16); }
};
static_assert(sizeof(Port) == 64);

struct alignas(64) PortQueues {
    std::uint32_t head[switching::traffic_classes];
    std::uint32_t tail[switching::traffic_classes];
    std::uint32_t bytes[switching::traffic_classes] = {};
    std::uint32_t max_bytes[switching::traffic_classes] = {};

    PortQueues() {
        for (std::uint32_t& h : head) h = none;
        for (std::uint32_t& t : tail) t = none;
    }
};

// Bytes that wait at the far end and came over one port's link, of one class; with priority flow control.
struct Ingress {
    std::int64_t signalled_ps = 0;  // when the last pause or resume reaches the port
    std::uint32_t bytes = 0;
    bool paused = false;  // the port was sent a pause
};

// Of one port and class, since the start. in = sent + dropped + trimmed + what waits; lost are among those sent.
//
// What every packet touches is apart from the rest: four classes to a cache line.
struct PacketCounters {
    std::uint64_t bytes_sent = 0;
    std::uint32_t packets_sent = 0;
    std::uint32_t packets_in = 0;
};

struct EventCounters {
    std::uint32_t packets_dropped = 0;  // by the switch: no room, or a threshold
    std::uint32_t packets_marked = 0;
    std::uint32_t packets_trimmed = 0;
    std::uint32_t packets_lost = 0;  // by a fault of the link
    std::uint32_t pauses = 0;        // times that the other end paused this class
};

}  // namespace dlcp::sim

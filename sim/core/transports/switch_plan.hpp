// Which switches of a fabric add for a job, and how its packets find them.
//
// One level where all ranks hang on one switch. Otherwise two: the switches with ranks, the leaves, send their sums to one
// above them, the root, on a fixed shortest path. The root is the switch that is nearest to the farthest leaf, and has no
// rank of the job itself. Pure: what a switch is told is AggregationJob, as the software switch is told it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/core/fabric.hpp"
#include "switch/aggregation.hpp"

namespace dlcp::sim {

// Addresses in simulated frames: 10.0.0.0/8 has the hosts, 172.16.0.0/12 the switches, as hubs and as lower switches.
inline constexpr std::uint32_t host_ip(std::uint32_t host) { return 10U << 24 | host; }
inline constexpr std::uint32_t switch_ip(std::uint32_t index) { return 0xac10U << 16 | index; }
inline constexpr std::uint64_t mac_of(std::uint32_t ip) { return std::uint64_t{2} << 40 | ip; }
inline constexpr std::uint32_t most_switches = 1U << 20;  // that addresses are enough for

// A job's UDP port, at all ends.
inline constexpr std::uint16_t udp_port_of(std::uint32_t job) { return static_cast<std::uint16_t>(53700 + job); }

struct SwitchPlan {
    // A switch that adds, by its number from 0, and what it is told.
    struct Adder {
        std::uint32_t index;
        switching::AggregationJob job;
    };
    std::vector<Adder> adders;  // leaves first, the root last
    // Where a rank is: adders[leaf].job.workers[worker].
    struct Place {
        std::uint32_t leaf;
        std::uint32_t worker;
    };
    std::vector<Place> places;  // by rank
    // What forwards a packet of the job for a switch's address: the port of the whole fabric.
    struct Route {
        std::uint32_t index;  // the switch that forwards
        std::uint32_t ip;
        std::uint32_t port;
    };
    std::vector<Route> routes;
};

// Throws std::invalid_argument: more ranks or switches than slots have bits, no switch above, lanes and slots that none has.
SwitchPlan plan_switch_sums(const Fabric& fabric, std::uint32_t job, const std::vector<std::uint32_t>& members,
                            std::uint16_t slots, std::uint32_t lanes);

}  // namespace dlcp::sim

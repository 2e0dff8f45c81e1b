// Configuration of the software switch: once at its start (Settings), and as often as wanted while it runs
// (Configuration).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "softswitch/mac_table.hpp"
#include "softswitch/time.hpp"
#include "switch/aggregation.hpp"
#include "switch/frame.hpp"
#include "switch/policy.hpp"

namespace dlcp::softswitch {

inline constexpr std::size_t max_ports = 64;
// Per frame on an Ethernet line besides its bytes: preamble and start 8, frame check sequence 4, gap 12 (IEEE 802.3).
inline constexpr std::uint32_t line_overhead_bytes = 24;
inline constexpr std::uint64_t max_rate_bps = 10'000'000'000'000;

struct Settings {
    std::uint32_t frames = 16'384;            // that can wait, all ports together
    std::vector<std::uint32_t> frame_bytes;   // longest frame of each port, tag included; as many as there
                                              // are ports
    std::uint32_t addresses = 4'096;          // MAC addresses that can be known
    Time ageing = std::chrono::seconds(300);  // IEEE 802.1Q, table 8-6
    std::uint32_t salt = 0;                   // of path choices: another one per switch
    std::uint64_t seed = 0;                   // of everything random
    std::uint32_t samples = 100'000;          // that are kept
};

struct PortConfiguration {
    std::uint64_t rate_bps = 0;  // 0: as fast as the interface takes
    switching::Policy policy;
};

struct Configuration {
    switching::Classification classification;
    std::vector<PortConfiguration> ports;
    std::vector<std::vector<std::uint16_t>> groups;  // of ports; a port is in one at most
    // Static MAC addresses, never learnt: where each lies.
    std::vector<std::pair<std::uint64_t, Target>> addresses;

    std::vector<switching::AggregationJob> aggregation;  // that the switch adds for

    // Empty if usable with `port_count` ports; otherwise what is wrong.
    std::string validate(std::size_t port_count) const;
};

}  // namespace dlcp::softswitch

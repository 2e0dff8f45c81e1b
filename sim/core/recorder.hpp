// What a run writes down besides counters: time series of ports, and records of single packets.
//
// Each domain writes its own; they are put together, in order of time, when somebody asks.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/core/packet.hpp"
#include "switch/policy.hpp"

namespace dlcp::sim {

enum class PacketEvent : std::uint8_t { queued, sent, dropped, marked, trimmed, lost };

struct PacketRecord {
    std::int64_t time_ps;
    std::uint32_t port;
    PacketEvent event;
    Packet packet;
    std::uint8_t header[64];  // an engine's packet: its own header; else zero
};

struct PortSample {
    std::int64_t time_ps;
    std::uint32_t port;
    std::uint32_t depth_bytes[switching::traffic_classes];
    std::uint64_t bytes_sent[switching::traffic_classes];  // since the start
};

// What is to be recorded.
class Recorder {
public:
    std::vector<std::uint32_t> sampled_ports;
    std::int64_t sample_interval_ps = 0;
    std::vector<std::uint32_t> traced_ports;
    std::uint64_t trace_limit = 0;  // records per domain

    // What was, by domain.
    struct Records {
        std::vector<PortSample> samples;
        std::vector<PacketRecord> packets;
    };
    std::vector<Records> domains;

    // All domains' records in order of time, then port.
    std::vector<PortSample> samples() const;
    std::vector<PacketRecord> packets() const;
};

}  // namespace dlcp::sim

// What a run records besides counters: time series of ports, and records of single packets.
//
// Each domain records its own part; readers merge the parts in order of time. The merged result is the same for any
// number of domains: all sample at the same moments, and each keeps its first records up to the limit and those of the
// same moment, so that the first `trace_limit` of all are among them.
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
    std::uint64_t
        bytes_sent[switching::traffic_classes];  // since the start; all of a packet as its first bit leaves
};

// What is to be recorded.
class Recorder {
public:
    std::vector<std::uint32_t> sampled_ports;
    std::int64_t sample_interval_ps = 0;
    std::vector<std::uint32_t> traced_ports;
    std::uint64_t trace_limit = 0;

    // What was, by domain, in order of time.
    struct Records {
        std::vector<PortSample> samples;
        std::vector<PacketRecord> packets;

        // Whether a record of this moment is kept.
        bool takes(std::int64_t now_ps, std::uint64_t limit) const {
            return packets.size() < limit || (limit != 0 && packets.back().time_ps == now_ps);
        }
    };
    std::vector<Records> domains;

    // Forgets samples that were taken later.
    void end_samples(std::int64_t at_ps);

    // All samples: a row per moment, in it the ports in order, of each all classes. A moment that only some domains
    // came to (a run that was stopped) is left out.
    struct Series {
        std::vector<std::int64_t> time_ps;
        std::vector<std::uint32_t> ports;
        std::vector<std::uint32_t> depth_bytes;
        std::vector<std::uint64_t> bytes_sent;
    };
    Series series() const;

    // The first `trace_limit` records of all domains in order of time, then port; of a port, as they happened.
    std::vector<PacketRecord> packets() const;
};

}  // namespace dlcp::sim

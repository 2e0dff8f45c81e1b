// The software switch's core on a virtual clock: frames are made here, put in at times, and what leaves is kept.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "softswitch/core.hpp"

namespace dlcp::softswitch::bench {

using namespace std::chrono_literals;

inline void put(std::vector<std::uint8_t>& out, std::uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<std::uint8_t>(value >> 8 * i));
}

// A dlcp data packet over UDP, or what its fields make of it.
struct Made {
    std::uint64_t destination = 0x020000000002;
    std::uint64_t source = 0x020000000001;
    bool ipv6 = false;
    unsigned dscp = 0;
    unsigned ecn = 0;
    unsigned importance = 128;
    unsigned type = 1;  // of dlcp: data
    unsigned path = 0;
    unsigned source_port = 40'000;
    std::uint32_t number = 0;  // in the message id, so that a test knows the frame again
    std::uint32_t payload_bytes = 1'000;

    std::vector<std::uint8_t> bytes() const {
        std::vector<std::uint8_t> dlcp;
        put(dlcp, 2u << 24 | type << 16, 4);
        put(dlcp, importance << 24 | path, 4);
        dlcp.resize(40);
        put(dlcp, number, 4);
        dlcp.resize(58);
        put(dlcp, payload_bytes, 2);
        dlcp.resize(64 + payload_bytes);
        const std::size_t udp_bytes = 8 + dlcp.size();

        std::vector<std::uint8_t> out;
        put(out, destination, 6);
        put(out, source, 6);
        if (ipv6) {
            put(out, 0x86dd, 2);
            put(out, 6u << 28 | (dscp << 2 | ecn) << 20, 4);
            put(out, udp_bytes, 2);
            put(out, 17u << 8 | 64, 2);
            for (unsigned host = 1; host <= 2; ++host) {
                put(out, 0x20010db8, 4);
                put(out, 0, 8);
                put(out, host, 4);
            }
        } else {
            put(out, 0x0800, 2);
            put(out, 0x45u << 8 | dscp << 2 | ecn, 2);
            put(out, 20 + udp_bytes, 2);
            put(out, 0, 4);
            put(out, 64u << 8 | 17, 2);
            put(out, 0, 2);
            put(out, 0x0a000001, 4);
            put(out, 0x0a000002, 4);
            const unsigned sum = complement_sum(out, 14, 34);
            out[24] = static_cast<std::uint8_t>(~sum >> 8);
            out[25] = static_cast<std::uint8_t>(~sum);
        }
        put(out, source_port, 2);
        put(out, 4'791, 2);
        put(out, udp_bytes, 2);
        put(out, 0, 2);
        out.insert(out.end(), dlcp.begin(), dlcp.end());
        return out;
    }

    static unsigned complement_sum(const std::vector<std::uint8_t>& bytes, std::size_t from, std::size_t to,
                                   unsigned sum = 0) {
        for (std::size_t i = from; i < to; i += 2) sum += bytes[i] * 256u + (i + 1 < to ? bytes[i + 1] : 0u);
        while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
        return sum;
    }
};

struct Sent {
    std::vector<std::uint8_t> bytes;
    Time at;

    std::size_t dlcp_at() const { return bytes[12] == 8 ? 42 : 62; }
    std::uint32_t number() const {
        const std::uint8_t* p = &bytes[dlcp_at() + 40];
        return std::uint32_t{p[0]} << 24 | p[1] << 16 | p[2] << 8 | p[3];
    }
    unsigned tos() const { return bytes[12] == 8 ? bytes[15] : (bytes[14] & 15u) << 4 | bytes[15] >> 4; }
    unsigned dscp() const { return tos() >> 2; }
    unsigned ecn() const { return tos() & 3; }
    bool trimmed() const { return (bytes[dlcp_at() + 2] & 0x80) != 0; }
};

// DSCP 8c belongs to class c; foreign traffic goes into class 0.
inline Configuration plain(std::size_t ports, std::uint64_t rate_bps) {
    Configuration out;
    for (std::size_t c = 0; c < 8; ++c) out.classification.class_of_dscp[8 * c] = static_cast<std::uint8_t>(c);
    out.ports.resize(ports);
    for (PortConfiguration& port : out.ports) port.rate_bps = rate_bps;
    return out;
}

class VirtualSwitch {
public:
    explicit VirtualSwitch(const Configuration& configuration, Settings settings = {})
        : core(with_ports(settings, configuration.ports.size()), configuration),
          sent(configuration.ports.size()) {}

    void handle(std::uint32_t port, const std::vector<std::uint8_t>& frame, Time at) {
        advance(at);
        core.handle_frame(port, frame, at);
        take();
    }
    void advance(Time at) {
        core.advance(at);
        while (take()) core.advance(at);
    }
    // Until everything that waits has left.
    void drain() {
        for (Time next = core.next_time(); next != no_time; next = core.next_time()) advance(next);
        advance(core.now() + 1s);
    }

    std::uint64_t fate(std::uint32_t port, Fate fate) const {
        std::uint64_t packets = 0;
        for (const auto& of_class : core.counters(port).decisions) {
            for (const auto& of_level : of_class) packets += of_level[static_cast<std::size_t>(fate)].packets;
        }
        return packets;
    }
    std::uint64_t offered(std::uint32_t port) const {
        std::uint64_t packets = 0;
        for (std::size_t f = 0; f < fates; ++f) packets += fate(port, static_cast<Fate>(f));
        return packets;
    }
    std::uint64_t sent_packets(std::uint32_t port) const {
        std::uint64_t packets = 0;
        for (const Count& count : core.counters(port).sent) packets += count.packets;
        return packets;
    }

    Core core;
    std::vector<std::vector<Sent>> sent;  // by port
    bool keep = true;                     // the frames, not only their counts

private:
    static Settings with_ports(Settings settings, std::size_t ports) {
        if (settings.frame_bytes.empty()) settings.frame_bytes.assign(ports, 1518);
        return settings;
    }

    bool take() {
        bool any = false;
        for (std::uint32_t port = 0; port < core.ports(); ++port) {
            const auto frames = core.departures(port);
            if (frames.empty()) continue;
            any = true;
            if (keep) {
                for (const Departure& frame : frames)
                    sent[port].push_back({{frame.data, frame.data + frame.bytes}, frame.at});
            }
            core.departed(port, frames.size());
        }
        return any;
    }
};

}  // namespace dlcp::softswitch::bench

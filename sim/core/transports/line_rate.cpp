// No transport at all: every flow leaves at line rate, flows of a host take turns, and nothing is repaired. It shows
// what the network does to unrestrained packets: the yardstick of the simulator and its tests.
#include <algorithm>
#include <array>
#include <utility>

#include "sim/core/domain.hpp"
#include "sim/core/flow_transport.hpp"
#include "sim/core/transports/packets_of.hpp"

namespace dlcp::sim {
namespace {

struct Settings {
    std::uint32_t payload_bytes = 4096;
    std::uint32_t header_bytes = 64;
    bool ecn_capable = true;

    void list(SettingsTable& table) {
        table.whole("payload_bytes", payload_bytes, 1, 65'000, "payload of a full packet");
        table.whole("header_bytes", header_bytes, 1, 1000, "on the wire beside the payload");
        table.flag("ecn_capable", ecn_capable, "packets are critical: switches mark them rather than drop them");
        table.check_packet(payload_bytes, header_bytes);
    }
};

struct Sender {
    std::uint64_t packets = 0;
    std::uint64_t sent = 0;
};

struct Receiver {
    std::uint64_t bytes = 0;  // of payload that has come
};

struct Counters {
    static constexpr std::array<std::pair<const char*, std::uint64_t Counters::*>, 0> names = {};
};

class LineRate final : public FlowStates<FlowTransport, Settings, Sender, Receiver, Counters> {
public:
    using FlowStates::FlowStates;

    void prepare(Simulation& simulation) override {
        FlowStates::prepare(simulation);
        for (std::size_t f = 0; f < senders_.size(); ++f)
            senders_[f].packets = packets_of(simulation.flows()[f].bytes, settings_.payload_bytes);
    }

    void start_flow(Domain& domain, std::uint32_t flow) override { ready(domain, flow); }

    void handle_packet(Domain& domain, std::uint32_t, std::uint32_t slot) override {
        const Packet& p = domain.packet(slot);
        const std::uint32_t flow = p.flow;
        const std::uint64_t came = p.wire_bytes - settings_.header_bytes;
        const bool trimmed = p.trimmed;
        domain.free_packet(slot);
        if (trimmed) return;
        receivers_[flow].bytes += came;
        if (receivers_[flow].bytes == domain.flow(flow).bytes) domain.flow_delivered(flow);
    }

    void handle_timer(Domain&, std::uint32_t, std::uint32_t) override {}

private:
    std::uint32_t next_data(Domain& domain, std::uint32_t flow) override {
        auto& [packets, sent] = senders_[flow];
        if (sent == packets) return none;
        const std::uint64_t left = domain.flow(flow).bytes - sent * settings_.payload_bytes;
        const std::uint64_t payload = std::min<std::uint64_t>(left, settings_.payload_bytes);
        const std::uint32_t slot = make_packet(domain, flow, false, data_packet, static_cast<std::uint32_t>(sent),
                                               static_cast<std::uint32_t>(payload) + settings_.header_bytes);
        Packet& p = domain.packet(slot);
        p.ecn_capable = settings_.ecn_capable;
        p.trimmable = !settings_.ecn_capable;
        p.importance = static_cast<std::uint32_t>(domain.random(flow, sent) % 255);
        p.path = static_cast<std::uint16_t>(flow);
        ++sent;
        ++domain.result(flow).sent_packets;
        if (sent == packets) domain.flow_acknowledged(flow);
        return slot;
    }
};

const TransportKind line_rate = TransportKind::of<LineRate>("line_rate");

}  // namespace
}  // namespace dlcp::sim

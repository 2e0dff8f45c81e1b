// No transport at all: every flow leaves at line rate, flows of a host taking turns, and nothing is repaired. What the
// network does to packets that nobody holds back; the simulator's own yardstick, and its tests'.
#include <algorithm>
#include <stdexcept>

#include "sim/core/domain.hpp"
#include "sim/core/flow_transport.hpp"
#include "sim/core/simulation.hpp"
#include "sim/core/transports/packets_of.hpp"
#include "sim/core/transports/registry.hpp"

namespace dlcp::sim {
namespace {

class LineRate final : public FlowTransport {
public:
    explicit LineRate(Parameters parameters)
        : payload_bytes_(static_cast<std::uint32_t>(parameters.take_integer("payload_bytes", 4096))),
          header_bytes_(static_cast<std::uint32_t>(parameters.take_integer("header_bytes", 64))),
          critical_(parameters.take_integer("ecn_capable", 1) != 0) {
        if (payload_bytes_ < 1 || std::uint64_t{payload_bytes_} + header_bytes_ > 65535)
            throw std::invalid_argument("payload_bytes is " + std::to_string(payload_bytes_) +
                                        "; accepted: 1 or more, with the header at most 65535");
        parameters.done("line_rate");
    }

    void prepare(Simulation& simulation) override {
        FlowTransport::prepare(simulation);
        sent_packets_.assign(simulation.flows().size(), 0);
        received_bytes_.assign(simulation.flows().size(), 0);
        packets_.resize(simulation.flows().size());
        for (std::size_t f = 0; f < packets_.size(); ++f)
            packets_[f] = packets_of(simulation.flows()[f].bytes, payload_bytes_);
    }

    void start_flow(Domain& domain, std::uint32_t flow) override { ready(domain, flow); }

    void handle_packet(Domain& domain, std::uint32_t, std::uint32_t slot) override {
        const Packet& p = domain.packet(slot);
        const std::uint32_t flow = p.flow;
        // A trimmed packet brings nothing.
        const std::uint64_t came = p.trimmed ? 0 : p.wire_bytes - header_bytes_;
        const bool counts = !p.trimmed;
        domain.free_packet(slot);
        if (!counts) return;
        received_bytes_[flow] += came;
        if (received_bytes_[flow] == domain.flow(flow).bytes) domain.flow_delivered(flow);
    }

    void handle_timer(Domain&, std::uint32_t, std::uint32_t) override {}
    std::uint32_t payload_bytes() const override { return payload_bytes_; }
    std::uint32_t header_bytes() const override { return header_bytes_; }

private:
    std::uint32_t next_data(Domain& domain, std::uint32_t flow) override {
        std::uint64_t& sent = sent_packets_[flow];
        if (sent == packets_[flow]) return none;
        const std::uint64_t left = domain.flow(flow).bytes - sent * payload_bytes_;
        const std::uint32_t slot =
            make_packet(domain, flow, false, data_packet, static_cast<std::uint32_t>(sent),
                        static_cast<std::uint32_t>(std::min<std::uint64_t>(left, payload_bytes_)) + header_bytes_);
        Packet& p = domain.packet(slot);
        p.ecn_capable = critical_;
        p.trimmable = !critical_;
        p.importance = static_cast<std::uint32_t>(domain.random(flow, sent) % 255);
        p.path = static_cast<std::uint16_t>(flow);
        ++sent;
        ++domain.result(flow).sent_packets;
        if (sent == packets_[flow]) domain.flow_acknowledged(flow);
        return slot;
    }

    const std::uint32_t payload_bytes_;
    const std::uint32_t header_bytes_;
    const bool critical_;
    std::vector<std::uint64_t> packets_;
    std::vector<std::uint64_t> sent_packets_;    // the source's
    std::vector<std::uint64_t> received_bytes_;  // the destination's
};

}  // namespace

std::unique_ptr<Transport> make_line_rate(Parameters parameters) {
    return std::make_unique<LineRate>(std::move(parameters));
}

}  // namespace dlcp::sim

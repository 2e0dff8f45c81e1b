// What the validation tests have in common: a transport that does nothing but send, runs with their checks on,
// statistics with their errors. Not for transports: theirs are tested by their own behaviour.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "engine/random.hpp"
#include "sim/core/domain.hpp"
#include "sim/core/flow_transport.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim::validation {

inline constexpr std::uint64_t gbps = 1'000'000'000;
inline constexpr std::int64_t us = 1'000'000;  // picoseconds

// Flows of one packet each, of Flow::bytes with all headers, critical if critical_ratio is 1. A packet that comes whole
// delivers its flow; what is lost stays lost.
class Datagrams final : public FlowTransport {
public:
    void prepare(Simulation& simulation) override {
        FlowTransport::prepare(simulation);
        sent_.assign(simulation.flows().size(), 0);
    }
    void start_flow(Domain& domain, std::uint32_t flow) override { ready(domain, flow); }
    void handle_packet(Domain& domain, std::uint32_t, std::uint32_t slot) override {
        const Packet packet = domain.packet(slot);
        domain.free_packet(slot);
        if (!packet.trimmed) domain.flow_delivered(packet.flow);
    }
    void handle_timer(Domain&, std::uint32_t, std::uint32_t) override {}
    std::uint32_t payload_bytes() const override { return 65535; }
    std::uint32_t header_bytes() const override { return 0; }

private:
    std::uint32_t next_data(Domain& domain, std::uint32_t flow) override {
        if (sent_[flow] != 0) return none;
        sent_[flow] = 1;
        const Flow& f = domain.flow(flow);
        const std::uint32_t slot =
            make_packet(domain, flow, false, data_packet, 0, static_cast<std::uint32_t>(f.bytes));
        Packet& packet = domain.packet(slot);
        packet.ecn_capable = f.critical_ratio >= 1;
        packet.importance = static_cast<std::uint8_t>(flow % 255);
        packet.path = static_cast<std::uint16_t>(flow);
        ++domain.result(flow).sent_packets;
        domain.flow_acknowledged(flow);
        return slot;
    }

    std::vector<std::uint8_t> sent_;
};

// Many hosts on one switch, all sending to host 0 over one slow link; their own links are so fast, and they so many,
// that packets reach its queue as they were sent.
struct Bottleneck {
    static constexpr std::uint32_t senders = 200;
    static constexpr std::uint64_t rate_bps = 10 * gbps;
    static constexpr std::uint64_t sender_rate_bps = 10'000 * gbps;
    static constexpr std::int64_t ps_per_byte = 800;
    static constexpr std::int64_t delay_ps = 1000;

    explicit Bottleneck(const switching::Policy& policy, std::uint64_t seed = 1) {
        Clos star;
        star.hosts = senders + 1;
        star.host_rate_bps = star.edge_rate_bps = star.core_rate_bps = sender_rate_bps;
        star.host_delay_ps = star.edge_delay_ps = star.core_delay_ps = delay_ps;
        Fabric fabric(star);
        port = fabric.reverse(0);
        fabric.set_rate(port, rate_bps);
        SimulationSettings settings;
        settings.seed = seed;
        settings.check_invariants = true;
        simulation =
            std::make_unique<Simulation>(std::move(fabric), policy, std::make_unique<Datagrams>(), settings);
    }

    void add(std::int64_t start_ps, std::uint32_t bytes, std::uint8_t traffic_class = 0, bool critical = true) {
        Flow flow;
        flow.source = 1 + static_cast<std::uint32_t>(simulation->flows().size()) % senders;
        flow.bytes = bytes;
        flow.start_ps = start_ps;
        flow.traffic_class = traffic_class;
        flow.critical_ratio = critical ? 1 : 0;
        simulation->add_flow(flow);
    }

    // When its packet is there if it waits nowhere.
    static std::int64_t unloaded_ps(std::uint64_t bytes) {
        return static_cast<std::int64_t>(bytes) * ps_per_byte + 2 * delay_ps + uplink_ps(bytes);
    }
    // From the sender to the queue, without the delay.
    static std::int64_t uplink_ps(std::uint64_t bytes) {
        return std::llround(static_cast<double>(bytes) * 8e12 / static_cast<double>(sender_rate_bps));
    }
    // How long a flow's packet waited at the bottleneck; negative: it did not come.
    std::int64_t waited_ps(std::uint32_t flow) const {
        const FlowResult& result = simulation->results()[flow];
        const Flow& f = simulation->flows()[flow];
        return result.delivered_ps < 0 ? -1 : result.delivered_ps - f.start_ps - unloaded_ps(f.bytes);
    }

    std::uint32_t port = 0;
    std::unique_ptr<Simulation> simulation;
};

// Random numbers of a test.
class Draw {
public:
    explicit Draw(std::uint64_t seed) : random_(seed) {}
    double unit() { return static_cast<double>((random_.next() >> 11) + 1) * 0x1p-53; }  // (0, 1]
    double exponential(double mean) { return -mean * std::log(unit()); }
    std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }

private:
    Random random_;
};

// The mean of a correlated series and its standard error, from the means of batches much longer than the correlation.
struct Estimate {
    double mean = 0;
    double error = 0;
};

inline Estimate estimate(const std::vector<double>& values, std::size_t batches = 40) {
    const std::size_t size = values.size() / batches;
    std::vector<double> means;
    for (std::size_t b = 0; b < batches; ++b) {
        double sum = 0;
        for (std::size_t i = 0; i < size; ++i) sum += values[b * size + i];
        means.push_back(sum / static_cast<double>(size));
    }
    Estimate e;
    for (const double m : means) e.mean += m / static_cast<double>(batches);
    double squares = 0;
    for (const double m : means) squares += (m - e.mean) * (m - e.mean);
    e.error = std::sqrt(squares / static_cast<double>(batches * (batches - 1)));
    return e;
}

// Within four standard errors of what theory says, and the errors small enough for that to mean something.
inline void check_near(const Estimate& e, double theory, double relative_error) {
    CAPTURE(e.mean);
    CAPTURE(e.error);
    CAPTURE(theory);
    CHECK(e.error < relative_error * theory);
    CHECK(std::abs(e.mean - theory) < 4 * e.error);
}

}  // namespace dlcp::sim::validation

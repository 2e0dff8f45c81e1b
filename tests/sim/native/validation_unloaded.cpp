// Validation 1 and 2: times that a pencil gives, exact to the picosecond, of single flows and of incast.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/native/validation.hpp"

using namespace dlcp;
using namespace dlcp::sim;
using namespace dlcp::sim::validation;

namespace {

constexpr std::uint32_t payload_bytes = 4096, header_bytes = 64;

std::unique_ptr<Transport> line_rate(double payload = payload_bytes) {
    return make_transport("line_rate", Parameters({{"payload_bytes", payload}, {"header_bytes", header_bytes}}));
}

Clos fat_tree(std::uint32_t k, std::uint64_t rate_bps = 100 * gbps, std::int64_t delay_ps = us) {
    return {k, k / 2, k / 2, k / 2, k * k / 4, rate_bps, rate_bps, rate_bps, delay_ps, delay_ps, delay_ps};
}

Flow flow_of(std::uint32_t source, std::uint32_t destination, std::uint64_t bytes, std::int64_t start_ps = 0) {
    Flow flow;
    flow.source = source;
    flow.destination = destination;
    flow.bytes = bytes;
    flow.start_ps = start_ps;
    return flow;
}

std::int64_t transmit_ps(std::uint64_t bytes, std::uint64_t rate_bps) {
    return std::llround(static_cast<double>(bytes) * 8e12 / static_cast<double>(rate_bps));
}

// When the last of a flow's packets is there: each leaves a link when it has come whole and the one before it has left.
std::int64_t pipeline_ps(std::uint64_t bytes, std::uint32_t payload, const std::vector<Link>& path) {
    std::vector<std::int64_t> free_ps(path.size(), 0);
    std::int64_t at_ps = 0;
    for (std::uint64_t sent = 0; sent < bytes; sent += payload) {
        at_ps = 0;
        for (std::size_t l = 0; l < path.size(); ++l) {
            const std::uint64_t wire = std::min<std::uint64_t>(payload, bytes - sent) + header_bytes;
            free_ps[l] = std::max(at_ps, free_ps[l]) + transmit_ps(wire, path[l].rate_bps);
            at_ps = free_ps[l] + path[l].delay_ps;
        }
    }
    return at_ps;
}

std::int64_t completion_ps(const Fabric& fabric, const Flow& flow, double payload = payload_bytes) {
    SimulationSettings settings;
    settings.check_invariants = true;
    Simulation simulation(fabric, switching::Policy{}, line_rate(payload), settings);
    simulation.add_flow(flow);
    REQUIRE(simulation.run(-1, -1));
    const FlowResult& result = simulation.results()[0];
    CHECK(result.started_ps == flow.start_ps);
    CHECK(result.delivered_bytes == flow.bytes);
    return result.delivered_ps - flow.start_ps;
}

}  // namespace

TEST_CASE("validation 1: an unloaded flow of full packets takes (n + L - 1) s + L d, over 2, 4 and 6 links") {
    const Fabric fabric(fat_tree(8));
    const std::int64_t s = transmit_ps(payload_bytes + header_bytes, 100 * gbps);
    CHECK(s == 332'800);
    // Host 0's neighbour, another in its pod, one in the last pod.
    const std::pair<std::uint32_t, std::int64_t> cases[] = {{1, 2}, {5, 4}, {127, 6}};
    for (const auto& [destination, links] : cases) {
        for (const std::int64_t packets : {1, 2, 489, 1000}) {
            CAPTURE(links);
            CAPTURE(packets);
            const auto bytes = static_cast<std::uint64_t>(packets) * payload_bytes;
            for (const std::int64_t start_ps : {std::int64_t{0}, 123'456'789'012}) {
                CHECK(completion_ps(fabric, flow_of(0, destination, bytes, start_ps)) ==
                      (packets + links - 1) * s + links * us);
            }
        }
    }
}

TEST_CASE("validation 1: P128's longest flow takes 170.40 us, less what its last packet is short of") {
    // 2,000,000 bytes are 488 full packets and a short one, which at every link waits for the full one before it.
    const std::int64_t full = transmit_ps(payload_bytes + header_bytes, 100 * gbps);
    const std::int64_t last = transmit_ps(2'000'000 - 488 * payload_bytes + header_bytes, 100 * gbps);
    const std::int64_t took = completion_ps(Fabric(fat_tree(8)), flow_of(0, 127, 2'000'000));
    CHECK((489 + 5) * full + 6 * us == 170'403'200);
    CHECK(took == (488 + 5) * full + last + 6 * us);
}

TEST_CASE("validation 1: a short last packet, and rates that differ from tier to tier, whichever is slowest") {
    struct Case {
        std::uint64_t host_bps, edge_bps, core_bps;
    };
    const Case cases[] = {{25 * gbps, 100 * gbps, 400 * gbps},
                          {400 * gbps, 100 * gbps, 25 * gbps},
                          {100 * gbps, 10 * gbps, 40 * gbps},
                          {100 * gbps, 400 * gbps, 10 * gbps},
                          {40 * gbps, 100 * gbps, 200 * gbps}};
    for (const Case& c : cases) {
        const Clos shape{4, 2, 3, 2, 4, c.host_bps, c.edge_bps, c.core_bps, us, 2 * us + 7, 500'003};
        const Fabric fabric(shape);
        const Link host{0, 0, c.host_bps, us}, edge{0, 0, c.edge_bps, 2 * us + 7}, core{0, 0, c.core_bps, 500'003};
        const std::map<std::uint32_t, std::vector<Link>> paths{
            {1, {host, host}}, {4, {host, edge, edge, host}}, {23, {host, edge, core, core, edge, host}}};
        for (const auto& [destination, path] : paths) {
            for (const std::uint64_t bytes : {1, 4095, 4096, 4097, 100'000, 1'000'001}) {
                CAPTURE(destination);
                CAPTURE(bytes);
                CHECK(completion_ps(fabric, flow_of(0, destination, bytes)) ==
                      pipeline_ps(bytes, payload_bytes, path));
            }
        }
    }
}

TEST_CASE("validation 1: links of one path that differ, in a graph") {
    // Five switches in a row, each cable of another rate and delay.
    const std::uint64_t rates[] = {100 * gbps, 40 * gbps, 25 * gbps, 200 * gbps, 10 * gbps, 50 * gbps};
    std::vector<Link> path, cables;
    for (std::uint32_t i = 0; i < 6; ++i) {
        path.push_back({0, 0, rates[i], 1000 * (i + 1) + i});
        const std::uint32_t from = i == 0 ? 0 : i + 1, to = i == 5 ? 1 : i + 2;
        cables.push_back({from, to, rates[i], path[i].delay_ps});
    }
    const Fabric fabric(2, 5, cables);
    for (const std::uint64_t bytes : {100, 9000, 123'457}) {
        CHECK(completion_ps(fabric, flow_of(0, 1, bytes), 1436) == pipeline_ps(bytes, 1436, path));
        std::vector<Link> back(path.rbegin(), path.rend());
        CHECK(completion_ps(fabric, flow_of(1, 0, bytes), 1436) == pipeline_ps(bytes, 1436, back));
    }
}

TEST_CASE("validation 1: a rate that no whole number of picoseconds fits is off by less than one per packet") {
    const Fabric fabric(fat_tree(4, 56 * gbps));
    const double s = 4160 * 8e12 / 56e9;
    const std::int64_t took = completion_ps(fabric, flow_of(0, 15, 1000 * payload_bytes));
    CHECK(std::abs(static_cast<double>(took) - (1005 * s + 6e6)) < 1005);
}

TEST_CASE("validation 2: incast fills the receiver's link: N n s + (L - 1) s + L d") {
    // All senders in the same place, so that their first packets come at once.
    const std::int64_t s = transmit_ps(payload_bytes + header_bytes, 100 * gbps);
    struct Case {
        std::uint32_t first, senders;
        std::int64_t links;
    };
    for (const Case& c : {Case{1, 3, 2}, Case{4, 12, 4}, Case{16, 100, 6}}) {
        CAPTURE(c.links);
        for (const std::int64_t packets : {1, 7, 200}) {
            switching::Policy policy;
            policy.path_choice = switching::PathChoice::round_robin;
            SimulationSettings settings;
            settings.check_invariants = true;
            Simulation simulation(Fabric(fat_tree(8)), policy, line_rate(), settings);
            for (std::uint32_t i = 0; i < c.senders; ++i)
                simulation.add_flow(flow_of(c.first + i, 0, static_cast<std::uint64_t>(packets) * payload_bytes));
            REQUIRE(simulation.run(-1, -1));
            std::int64_t last_ps = 0;
            for (const FlowResult& result : simulation.results()) last_ps = std::max(last_ps, result.delivered_ps);
            CHECK(last_ps == c.senders * packets * s + (c.links - 1) * s + c.links * us);
        }
    }
}

TEST_CASE("validation 2: I32 ends at 5,214 us, 5,208 of them at the receiver's link") {
    // (37 i mod 127) + 1 for i = 1 … 32; 3 of them are in host 0's pod and 29 are not.
    switching::Policy policy;
    policy.path_choice = switching::PathChoice::round_robin;
    SimulationSettings settings;
    settings.check_invariants = true;
    Simulation simulation(Fabric(fat_tree(8)), policy, line_rate(), settings);
    for (std::uint32_t i = 1; i <= 32; ++i) simulation.add_flow(flow_of(37 * i % 127 + 1, 0, 2'000'000));
    REQUIRE(simulation.run(-1, -1));
    std::int64_t last_ps = 0;
    for (const FlowResult& result : simulation.results()) last_ps = std::max(last_ps, result.delivered_ps);
    const std::int64_t s = transmit_ps(payload_bytes + header_bytes, 100 * gbps);
    const std::int64_t short_s = transmit_ps(2'000'000 - 488 * payload_bytes + header_bytes, 100 * gbps);
    const std::int64_t transmitting_ps = 32 * (488 * s + short_s);
    // The first packet comes over four links, and from then on the receiver's is never idle.
    CHECK(last_ps == transmitting_ps + 3 * s + 4 * us);
    CHECK(static_cast<double>(last_ps) == doctest::Approx(5214e6).epsilon(0.003));
}

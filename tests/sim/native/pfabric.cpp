// pFabric does what its paper says: shortest remaining first, everywhere, and recovery by a small timeout.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/sim/native/run.hpp"

using namespace dlcp::sim;
namespace switching = dlcp::switching;

namespace {

constexpr std::uint32_t payload = 1460, wire = 1500;
constexpr std::uint64_t rate_bps = 100'000'000'000;
constexpr std::int64_t packet_ps = 8 * 10 * wire, ack_ps = 8 * 10 * 40, delay_ps = 1'000'000;

// The topology of the paper's section 5: 9 leaves with 16 hosts, 4 spines.
Fabric leaf_spine() {
    return Fabric(Clos{1, 9, 16, 4, 0, rate_bps, 4 * rate_bps, 0, delay_ps, delay_ps, delay_ps});
}

// From leaf to leaf on an idle fabric; the two links between switches are four times as fast.
constexpr std::int64_t ideal_ps(std::int64_t packets) {
    return (packets + 1) * packet_ps + 2 * packet_ps / 4 + 4 * delay_ps;
}

switching::Policy random_paths(std::uint32_t buffer_packets) {
    switching::Policy policy;
    policy.port_bytes = buffer_packets * wire;
    policy.path_choice = switching::PathChoice::random;
    return policy;
}

struct Run : testing::TransportRun {
    explicit Run(std::uint32_t buffer_packets = 150, std::map<std::string, double> parameters = {},
                 std::uint32_t threads = 1)
        : TransportRun(leaf_spine(), random_paths(buffer_packets),
                       make_transport("pfabric", Parameters(std::move(parameters))),
                       {.threads = threads, .discipline = Discipline::least_rank}) {}
};

}  // namespace

TEST_CASE("pfabric: an unloaded flow is exact to the picosecond") {
    Run run;
    const std::uint32_t far = run.add(0, 143, 1000 * payload);
    const std::uint32_t near = run.add(20, 21, 7 * payload);
    run.run();
    CHECK(run.took_ps(far) == ideal_ps(1000));
    CHECK(run.took_ps(near) == (7 + 1) * packet_ps + 2 * delay_ps);
    CHECK(run.sum(&FlowResult::timeouts) == 0);
    CHECK(run.result(far).retransmitted_packets == 0);
    CHECK(run.result(near).acknowledged_ps == run.took_ps(near) + 2 * (ack_ps + delay_ps));
}

TEST_CASE("pfabric: a short flow goes ahead of long ones in the network, and takes little more than its bound") {
    Run run;
    for (std::uint32_t i = 1; i <= 8; ++i) run.add(16 * i, 0, 2000 * payload);
    const std::uint32_t brief = run.add(143, 0, 20 * payload, 100'000'000);
    run.run();
    // At worst each of its packets waits for one that is being sent.
    CHECK(run.took_ps(brief) <= ideal_ps(20) + 2 * packet_ps);
    CHECK(run.result(brief).timeouts == 0);
}

TEST_CASE("pfabric: of flows that share a link the shortest is over first, each when those before it are") {
    Run run;
    std::vector<std::uint32_t> flows;
    for (std::uint32_t i = 1; i <= 4; ++i) flows.push_back(run.add(16 * i, 0, 300 * i * payload));
    run.run();
    std::int64_t before_ps = 0;
    std::uint64_t packets = 0;
    for (std::uint32_t i = 1; i <= 4; ++i) {
        const std::int64_t end_ps = run.result(flows[i - 1]).delivered_ps;
        packets += 300 * i;
        CHECK(end_ps > before_ps);
        // The link carries them one after another; what it costs to go on is a timeout or two after a loss.
        const double link_ps = static_cast<double>(packets) * packet_ps;
        CHECK(static_cast<double>(end_ps) >= link_ps);
        CHECK(static_cast<double>(end_ps) <= 1.05 * link_ps + 60e6);
        before_ps = end_ps;
    }
}

TEST_CASE("pfabric: what counts is what is left, not how long the flow was") {
    Run run;
    const std::uint32_t old = run.add(16, 0, 1000 * payload);
    // When it has 150 packets left, or a little more, for the last acknowledgements are under way.
    const std::uint32_t young = run.add(32, 0, 300 * payload, 850 * packet_ps);
    run.run();
    CHECK(run.took_ps(old) <= ideal_ps(1000) + 2 * packet_ps);
    CHECK(run.took_ps(young) > ideal_ps(300) + 100 * packet_ps);
}

TEST_CASE("pfabric: a host's card serves its own flows by rank") {
    Run run;
    const std::uint32_t lengthy = run.add(0, 40, 2000 * payload);
    const std::uint32_t brief = run.add(0, 60, 50 * payload, 50'000'000);
    run.run();
    CHECK(run.took_ps(brief) <= ideal_ps(50) + packet_ps);
    CHECK(run.took_ps(lengthy) <= ideal_ps(2000 + 50) + packet_ps);
    // A flow that waits in its own host has lost nothing: no timeout.
    CHECK(run.sum(&FlowResult::timeouts) == 0);
}

TEST_CASE("pfabric: incast into a tiny buffer recovers and keeps the link busy") {
    Run run(24);
    for (std::uint32_t i = 1; i <= 40; ++i) run.add(3 * i + 17, 0, 100 * payload);
    run.run();
    CHECK(run.sum(&FlowResult::timeouts) > 0);
    CHECK(static_cast<double>(run.last_ps()) <= 1.3 * 40 * 100 * packet_ps);
}

TEST_CASE("pfabric: after five timeouts in a row a flow probes, and goes on when a probe is answered") {
    Run run(150, {{"rto_ps", 30e6}});
    const std::uint32_t flow = run.add(0, 143, 200 * payload);
    Fault fault;
    fault.port = 0;
    fault.at_ps = 5'000'000;
    run.simulation->add_fault(fault);
    fault.at_ps = 400'000'000;
    fault.kind = FaultKind::up;
    run.simulation->add_fault(fault);
    run.run();
    CHECK(run.result(flow).timeouts >= 10);
    // Four slow starts with one packet each, then probes.
    CHECK(run.counter("probes") >= static_cast<double>(run.result(flow).timeouts) - 5);
    CHECK(run.took_ps(flow) >= 400'000'000);
    CHECK(run.took_ps(flow) <= 400'000'000 + 30'000'000 + 60'000'000 + ideal_ps(200));
}

TEST_CASE("pfabric: random loss is repaired, each packet that was lost and hardly another") {
    Run run;
    const std::uint32_t flow = run.add(0, 143, 2000 * payload);
    Fault fault;
    fault.port = 0;
    fault.kind = FaultKind::loss;
    fault.value = 0.002;
    run.simulation->add_fault(fault);
    run.run();
    const std::uint64_t lost = run.simulation->event_counters(0, 0).packets_lost;
    CHECK(lost > 0);
    CHECK(run.result(flow).timeouts >= 1);
    CHECK(run.result(flow).retransmitted_packets == lost);
}

TEST_CASE("pfabric: the result is the same for any number of threads") {
    std::vector<std::vector<std::int64_t>> outcomes;
    for (const std::uint32_t threads : {1U, 2U, 3U}) {
        Run run(24, {}, threads);
        for (std::uint32_t h = 0; h < 60; ++h) {
            run.add(h, (h * 7 + 33) % 144, 40 * payload + h);
            run.add(h, 100 + h % 3, 10 * payload, 1'000'000 * h);
        }
        run.run();
        outcomes.push_back(run.outcome());
    }
    CHECK(outcomes[0] == outcomes[1]);
    CHECK(outcomes[0] == outcomes[2]);
}

TEST_CASE("pfabric: settings out of range are refused with their value") {
    CHECK_THROWS_WITH(make_transport("pfabric", Parameters({{"paths", 3}})), doctest::Contains("paths is 3"));
    CHECK_THROWS_WITH(make_transport("pfabric", Parameters({{"probe_after_timeouts", 0}})),
                      doctest::Contains("is 0"));
    CHECK_THROWS_WITH(make_transport("pfabric", Parameters({{"rto_ps", -5}})), doctest::Contains("-5"));
    CHECK_THROWS_WITH(make_transport("pfabric", Parameters({{"header_bytes", 65'000}})),
                      doctest::Contains("header_bytes is 65000; accepted: whole numbers from 1 to 1000"));
}

// What the core does at its bounds: ends of time, long packets on slow links, runs that failed, fabrics too large.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "tests/sim/native/validation.hpp"

using namespace dlcp::sim;
using namespace dlcp::sim::validation;

namespace {

Clos star_of(std::uint32_t hosts, std::uint64_t rate_bps) {
    Clos star;
    star.hosts = hosts;
    star.host_rate_bps = star.edge_rate_bps = star.core_rate_bps = rate_bps;
    star.host_delay_ps = star.edge_delay_ps = star.core_delay_ps = us;
    return star;
}

Flow flow_of(std::uint32_t source, std::uint32_t destination, std::uint64_t bytes, std::int64_t start_ps = 0) {
    Flow flow;
    flow.source = source;
    flow.destination = destination;
    flow.bytes = bytes;
    flow.start_ps = start_ps;
    return flow;
}

// Never sends; each flow sets a timer so far ahead that it cannot come.
class Waiter final : public FlowTransport {
public:
    void start_flow(Domain& domain, std::uint32_t flow) override {
        domain.set_timer(std::int64_t{1} << 58, domain.flow(flow).source, flow);
    }
    void handle_packet(Domain&, std::uint32_t, std::uint32_t) override {}
    void handle_timer(Domain&, std::uint32_t, std::uint32_t) override {}
    std::uint32_t payload_bytes() const override { return 1; }
    std::uint32_t header_bytes() const override { return 0; }

private:
    std::uint32_t next_data(Domain&, std::uint32_t) override { return none; }
};

}  // namespace

TEST_CASE("core: the longest packet on the slowest link takes its time") {
    Simulation simulation(Fabric(star_of(2, 1000)), {}, std::make_unique<Datagrams>(), {});
    simulation.add_flow(flow_of(0, 1, 65535));
    CHECK(simulation.run(-1, -1));
    CHECK(simulation.results()[0].delivered_ps == std::int64_t{2} * 65535 * 8'000'000'000 + 2 * us);
    CHECK(simulation.base_rtt_ps(0, 1, 65535, 65535) == 2 * simulation.results()[0].delivered_ps);
}

TEST_CASE("core: the end of time is an error, not a time before the last one") {
    for (const std::uint32_t threads : {1u, 2u}) {
        Clos leaves = star_of(1, 100 * gbps);
        leaves.edges = 2;
        leaves.aggregations = 1;
        SimulationSettings settings;
        settings.threads = threads;
        Simulation simulation(Fabric(leaves), {}, std::make_unique<Waiter>(), settings);
        simulation.add_flow(flow_of(0, 1, 1));
        CHECK_FALSE(simulation.run(latest_given_ps, -1));
        CHECK_THROWS_WITH_AS(simulation.run(-1, -1), doctest::Contains("its end"), std::runtime_error);
        CHECK_THROWS_WITH_AS(simulation.run(-1, -1), doctest::Contains("has failed"), std::logic_error);
    }
}

TEST_CASE("core: times and bytes beyond what a packet can say are refused") {
    Simulation simulation(Fabric(star_of(2, 100 * gbps)), {}, std::make_unique<Datagrams>(), {});
    CHECK_THROWS_AS(simulation.add_flow(flow_of(0, 1, 1, latest_given_ps + 1)), std::invalid_argument);
    CHECK_THROWS_AS(simulation.add_flow(flow_of(0, 1, std::uint64_t{1} << 63)), std::invalid_argument);
    CHECK_THROWS_AS(simulation.add_fault({latest_given_ps + 1, 0, FaultKind::down}), std::invalid_argument);
    CHECK_THROWS_AS(simulation.sample({0}, latest_given_ps + 1), std::invalid_argument);
    simulation.add_flow(flow_of(0, 1, 1000, latest_given_ps));
    CHECK(simulation.run(-1, -1));
    CHECK(simulation.results()[0].delivered_ps == latest_given_ps + 2 * 80'000 + 2 * us);
}

TEST_CASE("core: a run that could not begin does not begin when it is asked again") {
    Simulation simulation(Fabric(star_of(2, 100 * gbps)), {}, std::make_unique<Datagrams>(), {});
    simulation.add_flow(flow_of(0, 1, 1000, -1));
    CHECK_THROWS_WITH_AS(simulation.run(-1, -1), doctest::Contains("no task"), std::invalid_argument);
    CHECK_THROWS_WITH_AS(simulation.run(-1, -1), doctest::Contains("no task"), std::logic_error);
}

TEST_CASE("core: hosts that are not there have no round trip") {
    const Simulation simulation(Fabric(star_of(2, 100 * gbps)), {}, std::make_unique<Datagrams>(), {});
    CHECK_THROWS_WITH_AS(simulation.base_rtt_ps(9'999'999, 1, 1, 1),
                         doctest::Contains("host is 9999999; accepted: 0 to 1"), std::invalid_argument);
}

TEST_CASE("core: fabrics whose numbers do not fit are refused") {
    CHECK_THROWS_WITH_AS(Fabric(2, UINT32_MAX, {}), doctest::Contains("switches is 4294967295"),
                         std::invalid_argument);
    Clos wide = star_of(1, 100 * gbps);
    wide.pods = wide.aggregations = wide.cores = 65535;
    CHECK_THROWS_WITH_AS(Fabric{wide}, doctest::Contains("ports; accepted"), std::invalid_argument);
}

TEST_CASE("core: more faults of one moment than a tie can tell apart happen in the order they were given") {
    Simulation simulation(Fabric(star_of(2, 100 * gbps)), {}, std::make_unique<Datagrams>(), {});
    for (int i = 0; i <= 1 << 17; ++i) simulation.add_fault({0, 0, FaultKind::rate, 10e9});
    simulation.add_fault({0, 0, FaultKind::rate, 50e9});
    simulation.add_flow(flow_of(0, 1, 1000, us));
    CHECK(simulation.run(-1, -1));
    CHECK(simulation.results()[0].delivered_ps == us + 160'000 + 80'000 + 2 * us);
}

TEST_CASE("core: a run that comes to rest is sampled up to there, by any number of threads") {
    for (const std::uint32_t threads : {1u, 2u}) {
        Clos leaves = star_of(1, 100 * gbps);
        leaves.edges = 2;
        leaves.aggregations = 1;
        SimulationSettings settings;
        settings.threads = threads;
        Simulation simulation(Fabric(leaves), {}, std::make_unique<Datagrams>(), settings);
        simulation.add_flow(flow_of(0, 1, 1000, 5 * us));
        simulation.add_fault({0, 1 + simulation.fabric().hosts(), FaultKind::loss, 1});  // from the first leaf up
        simulation.sample({0, 1}, 700'000);
        CHECK(simulation.run(-1, -1));
        CHECK(simulation.results()[0].delivered_ps == -1);
        // The packet is lost at the leaf.
        CHECK(simulation.now_ps() == 5 * us + 80'000 + us);
        CHECK(simulation.recorder().series().time_ps.size() == simulation.now_ps() / 700'000 + 1);
    }
}

TEST_CASE("core: what is open is sampled up to where it is asked to run") {
    for (const std::uint32_t threads : {1u, 2u}) {
        Clos leaves = star_of(1, 100 * gbps);
        leaves.edges = 2;
        leaves.aggregations = 1;
        SimulationSettings settings;
        settings.threads = threads;
        Simulation simulation(Fabric(leaves), {}, std::make_unique<Datagrams>(), settings);
        simulation.keep_open();
        simulation.add_flow(flow_of(0, 1, 1000));
        simulation.sample({0, 1}, us);
        CHECK(simulation.run(100 * us, -1));
        CHECK(simulation.now_ps() == 100 * us);
        CHECK(simulation.recorder().series().time_ps.size() == 100);
    }
}

TEST_CASE("core: only the ports asked for last are traced") {
    Simulation simulation(Fabric(star_of(2, 100 * gbps)), {}, std::make_unique<Datagrams>(), {});
    simulation.add_flow(flow_of(0, 1, 1000));
    simulation.trace({0}, 10);
    simulation.trace({simulation.fabric().reverse(1)}, 10);
    CHECK(simulation.run(-1, -1));
    for (const PacketRecord& record : simulation.recorder().packets())
        CHECK(record.port == simulation.fabric().reverse(1));
}

TEST_CASE("core: a payload that wraps around is no small one") {
    for (const char* name : {"ndp", "pfabric", "dcqcn", "uet", "line_rate"}) {
        CAPTURE(name);
        CHECK_THROWS_AS(make_transport(name, Parameters({{"payload_bytes", -1}})), std::invalid_argument);
    }
}

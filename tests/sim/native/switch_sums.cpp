// Which switches add, and that every rank has every sum, with any number of threads. Times, losses of other kinds and what
// is refused: tests/sim/test_switch_sums.py.
#include "sim/core/transports/switch_sums.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "sim/core/simulation.hpp"
#include "sim/core/transports/dlcp.hpp"
#include "sim/core/transports/switch_plan.hpp"

namespace dlcp::sim {
namespace {

constexpr std::uint64_t rate_bps = 100'000'000'000;
constexpr std::int64_t delay_ps = 1'000'000;

Fabric pods(std::uint32_t pods, std::uint32_t edges, std::uint32_t hosts, std::uint32_t aggregations,
            std::uint32_t cores) {
    return Fabric(
        Clos{pods, edges, hosts, aggregations, cores, rate_bps, rate_bps, rate_bps, delay_ps, delay_ps, delay_ps});
}

std::vector<std::uint32_t> all_hosts(const Fabric& fabric) {
    std::vector<std::uint32_t> hosts(fabric.hosts());
    for (std::uint32_t host = 0; host < fabric.hosts(); ++host) hosts[host] = host;
    return hosts;
}

// Where a frame for this address ends up, by the plan's routes from a switch on.
std::uint32_t end_of(const Fabric& fabric, const SwitchPlan& plan, std::uint32_t index, std::uint32_t ip,
                     std::uint32_t& came_by) {
    for (;;) {
        const auto route =
            std::find_if(plan.routes.begin(), plan.routes.end(),
                         [&](const SwitchPlan::Route& each) { return each.index == index && each.ip == ip; });
        if (route == plan.routes.end()) return index;
        const std::uint32_t next = fabric.link(route->port).to;
        came_by = fabric.reverse(route->port) - fabric.first_port(next);
        index = next - fabric.hosts();
    }
}

TEST_CASE("one switch adds where all ranks are at it; a job's ranks alone count") {
    const Fabric fabric = pods(1, 2, 4, 2, 0);
    const SwitchPlan plan = plan_switch_sums(fabric, 5, {6, 4, 7}, 16, 32);
    REQUIRE(plan.adders.size() == 1);
    CHECK(plan.adders[0].index == 1);
    CHECK(!plan.adders[0].job.upper);
    CHECK(plan.routes.empty());
    const auto& workers = plan.adders[0].job.workers;
    REQUIRE(workers.size() == 3);
    CHECK(workers[0].ip == host_ip(6));
    CHECK(workers[0].port == 2);
    CHECK(workers[1].port == 0);
    CHECK(plan.places[2].worker == 2);
    CHECK(switching::validate({&plan.adders[0].job, 1}, 6).empty());
}

TEST_CASE("frames between leaves and root arrive by the ports that the jobs name") {
    for (const Fabric& fabric : {pods(1, 4, 3, 2, 0), pods(3, 2, 2, 2, 4), pods(4, 2, 2, 2, 4)}) {
        const SwitchPlan plan = plan_switch_sums(fabric, 1, all_hosts(fabric), 16, 32);
        const SwitchPlan::Adder& root = plan.adders.back();
        REQUIRE(root.job.workers.size() == plan.adders.size() - 1);
        for (std::size_t leaf = 0; leaf + 1 < plan.adders.size(); ++leaf) {
            const SwitchPlan::Adder& adder = plan.adders[leaf];
            REQUIRE(adder.job.upper);
            CHECK(adder.job.upper->worker == leaf);
            std::uint32_t came_by = none;
            CHECK(end_of(fabric, plan, adder.index, root.job.hub.ip, came_by) == root.index);
            CHECK(came_by == root.job.workers[leaf].port);
            CHECK(end_of(fabric, plan, root.index, root.job.workers[leaf].ip, came_by) == adder.index);
            CHECK(came_by == adder.job.upper->hub.port);
        }
    }
}

struct Outcome {
    std::vector<std::int64_t> finished_ps;
    std::map<std::string, double> counters;
};

// Two sums of all hosts, one after the other, on links that lose one packet in fifty.
Outcome run(Fabric fabric, std::uint32_t threads, double lost) {
    auto made = make_transport("dlcp", {});
    auto& transport = dynamic_cast<DlcpTransport&>(*made);
    const SwitchSumSpec spec{.members = all_hosts(fabric), .bytes = 100'000, .slots = 16, .lanes = 64, .bits = 32};
    const std::uint32_t ports = fabric.ports();
    for (int sum = 0; sum < 2; ++sum) transport.add_switch_sum(fabric, spec);
    Simulation simulation(std::move(fabric), {}, std::move(made),
                          {.seed = 7, .threads = threads, .check_invariants = true});
    for (std::uint32_t port = 0; lost > 0 && port < ports; port += 5)
        simulation.add_fault({.at_ps = 0, .port = port, .kind = FaultKind::loss, .value = lost});
    for (std::int64_t sum = 0; sum < 2; ++sum)
        for (const std::uint32_t host : spec.members)
            simulation.tasks().add_task(
                {.kind = TaskKind::collective, .host = host, .value = sum << 32 | std::int64_t{host}});
    REQUIRE(simulation.run(-1, -1));
    Outcome outcome{{}, simulation.transport().counters()};
    for (const TaskTimes& times : simulation.tasks().times()) outcome.finished_ps.push_back(times.finished_ps);
    return outcome;
}

TEST_CASE("every rank has every sum, the same with any number of threads") {
    constexpr double blocks = 2 * 391;  // of 64 values
    for (const double lost : {0.0, 0.02}) {
        const Outcome alone = run(pods(4, 2, 2, 2, 4), 1, lost);
        for (const std::int64_t at_ps : alone.finished_ps) CHECK(at_ps > 0);
        CHECK(alone.counters.at("sums_received") == 16 * blocks);
        CHECK(alone.counters.at("slots_completed") == 9 * blocks);
        CHECK((alone.counters.at("contributions_repeated") > 0) == (lost > 0));
        for (const std::uint32_t threads : {2U, 4U}) {
            const Outcome shared = run(pods(4, 2, 2, 2, 4), threads, lost);
            CHECK(shared.finished_ps == alone.finished_ps);
            CHECK(shared.counters == alone.counters);
        }
    }
}

TEST_CASE("a sum that is not what it has to be is refused") {
    KnownBlocks mine(4, 100, 32, 3, 1);
    std::vector<std::uint8_t> values(4 * 32), sums(4 * 32);
    std::vector<std::uint32_t> added(32, 0);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        KnownBlocks(4, 100, 32, 3, rank).write(2, values.data());
        for (std::size_t lane = 0; lane < 32; ++lane) added[lane] += aggregation::read32(&values[4 * lane]);
    }
    for (std::size_t lane = 0; lane < 32; ++lane) aggregation::write32(&sums[4 * lane], added[lane]);
    CHECK(mine.take(2, sums.data()));
    CHECK(!mine.take(1, sums.data()));
    aggregation::write32(&sums[4 * 31], added[31] + 1);
    CHECK(!mine.take(2, sums.data()));
}

}  // namespace
}  // namespace dlcp::sim

// Routes of regular trees by arithmetic and by tables are the same; failures are routed around.
#include "sim/core/routes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "sim/core/simulation.hpp"
#include "support/native/dice.hpp"

using namespace dlcp;
using namespace dlcp::sim;
using dlcp::test::Dice;

namespace {

Clos random_clos(Dice& dice) {
    Clos c;
    c.pods = static_cast<std::uint32_t>(dice.between(1, 4));
    c.edges = static_cast<std::uint32_t>(dice.between(1, 4));
    c.hosts = static_cast<std::uint32_t>(dice.between(2, 4));
    c.aggregations = static_cast<std::uint32_t>(dice.between(1, 3));
    c.cores = c.pods > 1 ? c.aggregations * static_cast<std::uint32_t>(dice.between(1, 3)) : 0;
    c.host_rate_bps = c.edge_rate_bps = c.core_rate_bps = 100'000'000'000;
    c.host_delay_ps = c.edge_delay_ps = c.core_delay_ps = 1'000'000;
    return c;
}

std::vector<std::uint32_t> ports_of(const NextHops& hops) {
    std::vector<std::uint32_t> ports;
    for (std::uint32_t i = 0; i < hops.count; ++i) ports.push_back(hops[i]);
    std::sort(ports.begin(), ports.end());
    return ports;
}

// How many links from a switch to a host over any of the next hops, which must all be equally long; 99: none.
std::uint32_t distance(const Fabric& fabric, const Routes& routes, const RouteTable* table, std::uint32_t node,
                       std::uint32_t host, std::uint32_t budget = 16) {
    if (node == host) return 0;
    if (budget == 0) return 99;
    const NextHops hops = routes.next_hops(table, node, host);
    std::uint32_t found = 99;
    for (std::uint32_t i = 0; i < hops.count; ++i) {
        const std::uint32_t rest = distance(fabric, routes, table, fabric.link(hops[i]).to, host, budget - 1);
        if (found != 99) REQUIRE(rest + 1 == found);
        found = rest == 99 ? 99 : rest + 1;
    }
    return found;
}

}  // namespace

TEST_CASE("routes: on regular trees arithmetic and tables name the same ports") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        Dice dice(seed);
        const Fabric fabric(random_clos(dice));
        const Routes routes(fabric);
        const RouteTable table(fabric, std::vector<bool>(fabric.ports(), false));
        for (std::uint32_t node = fabric.hosts(); node < fabric.nodes(); ++node)
            for (std::uint32_t host = 0; host < fabric.hosts(); ++host) {
                const NextHops by_table = routes.next_hops(&table, node, host);
                // A core that reaches a pod by one port, an edge that goes up for a neighbour's host: all of them.
                REQUIRE(ports_of(routes.next_hops(nullptr, node, host)) == ports_of(by_table));
            }
    }
}

TEST_CASE("routes: every way ends at the host, all of them equally long, on trees and on graphs") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Dice dice(seed);
        // A random connected graph of switches, two hosts on each.
        const auto switches = static_cast<std::uint32_t>(dice.between(2, 9));
        std::vector<Link> cables;
        const std::uint32_t hosts = 2 * switches;
        for (std::uint32_t h = 0; h < hosts; ++h) cables.push_back({h, hosts + h / 2, 10'000'000'000, 1000});
        for (std::uint32_t s = 1; s < switches; ++s)
            cables.push_back({hosts + s, hosts + static_cast<std::uint32_t>(dice.below(s)), 10'000'000'000, 1000});
        for (std::uint64_t n = dice.below(6); n > 0; --n) {
            const auto a = static_cast<std::uint32_t>(dice.below(switches)),
                       b = static_cast<std::uint32_t>(dice.below(switches));
            if (a != b) cables.push_back({hosts + a, hosts + b, 10'000'000'000, 1000});
        }
        const Fabric fabric(hosts, switches, cables);
        const Routes routes(fabric);
        for (std::uint32_t s = 0; s < switches; ++s)
            for (std::uint32_t h = 0; h < hosts; ++h)
                REQUIRE(distance(fabric, routes, routes.first_table(), hosts + s, h) < 99);
    }
}

TEST_CASE("routes: who knows that a link is down sends nothing there, and nothing where no way is left") {
    const Fabric fabric(Clos{.pods = 2,
                             .edges = 2,
                             .hosts = 2,
                             .aggregations = 2,
                             .cores = 4,
                             .host_rate_bps = 1'000'000'000,
                             .edge_rate_bps = 1'000'000'000,
                             .core_rate_bps = 1'000'000'000,
                             .host_delay_ps = 1000,
                             .edge_delay_ps = 1000,
                             .core_delay_ps = 1000});
    const std::uint32_t edge = fabric.edge_of(0);
    const std::uint32_t up = fabric.first_port(edge) + 2, down = fabric.reverse(up);
    RouteVersions versions;
    std::vector<Fault> faults = {{0, up, FaultKind::down}, {0, down, FaultKind::down}, {5, 0, FaultKind::reroute},
                                 {9, up, FaultKind::up},   {9, down, FaultKind::up},   {9, 0, FaultKind::reroute}};
    versions.prepare(fabric, faults);
    const Routes routes(fabric);
    CHECK(ports_of(routes.next_hops(versions.table(2), edge, 6)) == std::vector<std::uint32_t>{up + 1});
    CHECK(ports_of(routes.next_hops(versions.table(5), edge, 6)) == std::vector<std::uint32_t>{up, up + 1});
    // From the other pod: only over the cores of the aggregation switch that still reaches this edge.
    const std::uint32_t other = fabric.edge_of(7);
    const NextHops hops = routes.next_hops(versions.table(2), other, 0);
    REQUIRE(hops.count == 1);
    CHECK(distance(fabric, routes, versions.table(2), other, 0) == 5);
    // Cut off altogether.
    std::vector<bool> cut(fabric.ports(), false);
    cut[up] = cut[up + 1] = cut[down] = cut[fabric.reverse(up + 1)] = true;
    const RouteTable table(fabric, cut);
    CHECK(routes.next_hops(&table, other, 0).count == 0);
}

TEST_CASE("fabric: bad shapes are refused, naming what is wrong") {
    const Clos good{.pods = 2,
                    .edges = 2,
                    .hosts = 2,
                    .aggregations = 2,
                    .cores = 4,
                    .host_rate_bps = 1'000'000'000,
                    .edge_rate_bps = 1'000'000'000,
                    .core_rate_bps = 1'000'000'000,
                    .host_delay_ps = 1000,
                    .edge_delay_ps = 1000,
                    .core_delay_ps = 1000};
    const auto refused = [&](auto change, const char* word) {
        Clos c = good;
        change(c);
        CHECK_THROWS_WITH_AS(Fabric{c}, doctest::Contains(word), std::invalid_argument);
    };
    CHECK_NOTHROW(Fabric{good});
    refused([](Clos& c) { c.cores = 3; }, "cores");
    refused([](Clos& c) { c.cores = 0; }, "cores");
    refused([](Clos& c) { c.aggregations = 0; }, "aggregations");
    refused([](Clos& c) { c.hosts = 0; }, "hosts");
    refused([](Clos& c) { c.host_rate_bps = 0; }, "rate_bps");
    refused([](Clos& c) { c.core_delay_ps = 0; }, "delay_ps");
    CHECK_THROWS_WITH_AS((Fabric{2, 1, {{0, 2, 1'000'000, 10}}}), doctest::Contains("host 1 has 0 cables"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS((Fabric{2, 1, {{0, 1, 1'000'000, 10}}}), doctest::Contains("joins hosts"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS((Fabric{2, 1, {{0, 9, 1'000'000, 10}}}), doctest::Contains("node 9"),
                         std::invalid_argument);
}

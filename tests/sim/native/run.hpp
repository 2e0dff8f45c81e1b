// What the tests of NDP, pFabric, DCQCN and UET have in common: a fat-tree of equal links, and a simulation of some flows,
// run to its end with the invariants checked, with sums over its flows and ports. Policies, settings and what else
// differs from transport to transport stand in each one's file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "sim/core/simulation.hpp"

namespace dlcp::sim::testing {

inline Fabric fat_tree(std::uint32_t k, std::uint64_t rate_bps, std::int64_t delay_ps) {
    return Fabric(
        Clos{k, k / 2, k / 2, k / 2, k * k / 4, rate_bps, rate_bps, rate_bps, delay_ps, delay_ps, delay_ps});
}

struct TransportRun {
    TransportRun(Fabric fabric, const switching::Policy& policy, std::unique_ptr<Transport> transport,
                 SimulationSettings settings) {
        settings.check_invariants = true;
        simulation = std::make_unique<Simulation>(std::move(fabric), policy, std::move(transport), settings);
    }
    std::uint32_t add(std::uint32_t source, std::uint32_t destination, std::uint64_t bytes,
                      std::int64_t start_ps = 0) {
        Flow flow;
        flow.source = source;
        flow.destination = destination;
        flow.bytes = bytes;
        flow.start_ps = start_ps;
        return simulation->add_flow(flow);
    }
    void run() {
        REQUIRE(simulation->run(-1, -1));
        const std::vector<FlowResult>& results = simulation->results();
        for (std::size_t i = 0; i < results.size(); ++i) {
            CHECK(results[i].delivered_ps >= 0);
            CHECK(results[i].delivered_bytes == simulation->flows()[i].bytes);
            CHECK(results[i].acknowledged_ps > results[i].delivered_ps);
        }
    }
    const FlowResult& result(std::uint32_t flow) const { return simulation->results()[flow]; }
    std::int64_t took_ps(std::uint32_t flow) const { return result(flow).delivered_ps - result(flow).started_ps; }
    std::int64_t last_ps() const {
        std::int64_t last = 0;
        for (const FlowResult& result : simulation->results()) last = std::max(last, result.delivered_ps);
        return last;
    }
    // Over all flows, of a member of FlowResult.
    template <class Member>
    std::uint64_t sum(Member member) const {
        std::uint64_t total = 0;
        for (const FlowResult& result : simulation->results()) total += result.*member;
        return total;
    }
    // Over all ports and classes, of a member of EventCounters.
    template <class Member>
    std::uint64_t count(Member member) const {
        std::uint64_t total = 0;
        for (std::uint32_t p = 0; p < simulation->fabric().ports(); ++p)
            for (std::uint32_t c = 0; c < switching::traffic_classes; ++c)
                total += simulation->event_counters(p, c).*member;
        return total;
    }
    double counter(const std::string& name) const { return simulation->transport().counters().at(name); }
    // All that must not depend on the number of threads: per flow, two times and how often it sent again.
    std::vector<std::int64_t> outcome() const {
        std::vector<std::int64_t> values;
        for (const FlowResult& result : simulation->results()) {
            values.push_back(result.delivered_ps);
            values.push_back(result.acknowledged_ps);
            values.push_back(static_cast<std::int64_t>(result.retransmitted_packets));
        }
        return values;
    }

    std::unique_ptr<Simulation> simulation;
};

}  // namespace dlcp::sim::testing

// TCP and DCTCP in the simulated network, against what was published of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "sim/core/simulation.hpp"
#include "sim/core/transports/tcp_transport.hpp"

namespace {

using namespace dlcp::sim;
namespace switching = dlcp::switching;

constexpr std::int64_t us = 1'000'000;
constexpr std::int64_t ms = 1'000 * us;
constexpr std::uint32_t full_bytes = 1538;  // a full packet on the wire

// `pairs` senders and as many receivers on two switches with one link between them: hosts i and pairs + i.
struct Dumbbell {
    std::uint32_t pairs = 1;
    double rate_bps = 10e9;          // between the switches; hosts have four times as much
    std::int64_t rtt_ps = 100 * us;  // of delays alone
    std::uint32_t buffer_packets = 500;
    std::uint32_t mark_packets = 0;  // 0: none are marked
    std::uint64_t seed = 1;
    std::uint32_t threads = 1;

    std::uint32_t bottleneck = 0;  // port

    std::unique_ptr<Simulation> build(std::unique_ptr<Transport> transport) {
        const std::uint32_t left = 2 * pairs, right = 2 * pairs + 1;
        std::vector<Link> cables;
        const std::int64_t edge_ps = rtt_ps / 20;
        for (std::uint32_t h = 0; h < 2 * pairs; ++h) {
            cables.push_back({h, h < pairs ? left : right, static_cast<std::uint64_t>(4 * rate_bps), edge_ps});
        }
        cables.push_back({left, right, static_cast<std::uint64_t>(rate_bps), rtt_ps / 2 - 2 * edge_ps});
        Fabric fabric(2 * pairs, 2, cables, {0, 1});
        bottleneck = fabric.port_between(left, right);
        switching::Policy policy;
        policy.port_bytes = buffer_packets * full_bytes;
        if (mark_packets > 0) {
            for (switching::ClassPolicy& each : policy.classes) {
                switching::Thresholds& at = each.level[switching::critical_level];
                at.mark_from_bytes = at.mark_full_bytes = mark_packets * full_bytes;
            }
        }
        SimulationSettings settings;
        settings.seed = seed;
        settings.threads = threads;
        settings.check_invariants = true;
        return std::make_unique<Simulation>(std::move(fabric), policy, std::move(transport), settings);
    }
};

Flow flow(std::uint32_t source, std::uint32_t destination, std::uint64_t bytes, std::int64_t start_ps = 0) {
    Flow f;
    f.source = source;
    f.destination = destination;
    f.bytes = bytes;
    f.start_ps = start_ps;
    return f;
}

std::unique_ptr<Transport> tcp(std::map<std::string, double> values) {
    values.try_emplace("mtu_bytes", 1500);  // the closed forms here are of Ethernet's usual packets
    return make_transport("tcp", Parameters(std::move(values)));
}

std::uint64_t dropped(const Simulation& simulation) {
    std::uint64_t sum = 0;
    for (std::uint32_t p = 0; p < simulation.fabric().ports(); ++p) {
        sum += simulation.event_counters(p, 0).packets_dropped;
    }
    return sum;
}

// What waited in class 0 of the one port that was sampled, from then on.
std::vector<double> depths_packets(const Simulation& simulation, std::int64_t from_ps) {
    const Recorder::Series series = simulation.recorder().series();
    std::vector<double> depths;
    for (std::size_t row = 0; row < series.time_ps.size(); ++row) {
        if (series.time_ps[row] < from_ps) continue;
        depths.push_back(static_cast<double>(series.depth_bytes[row * switching::traffic_classes]) / full_bytes);
    }
    return depths;
}

// Jain's index of what flows have delivered between two moments.
double fairness(const std::vector<std::uint64_t>& before, const std::vector<FlowResult>& after) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
        const auto bytes = static_cast<double>(after[i].delivered_bytes - before[i]);
        sum += bytes;
        squares += bytes * bytes;
    }
    return sum * sum / (static_cast<double>(before.size()) * squares);
}

std::vector<std::uint64_t> delivered(const Simulation& simulation) {
    std::vector<std::uint64_t> bytes;
    for (const FlowResult& result : simulation.results()) bytes.push_back(result.delivered_bytes);
    return bytes;
}

}  // namespace

TEST_CASE("tcp: an unloaded flow within the initial window is exact to the picosecond") {
    Dumbbell d;
    auto simulation = d.build(tcp({}));
    constexpr std::uint64_t count = 10;
    simulation->add_flow(flow(0, 1, count * 1448));
    REQUIRE(simulation->run(-1, -1));
    const std::int64_t fast_ps = full_bytes * 8 * 25, slow_ps = full_bytes * 8 * 100;
    CHECK(simulation->results()[0].delivered_ps == 2 * fast_ps + std::int64_t{count} * slow_ps + d.rtt_ps / 2);
    CHECK(simulation->results()[0].sent_packets == count);
}

TEST_CASE("tcp: a handshake takes a round trip, and its loss a second") {
    Dumbbell d;
    const auto completion = [&](std::map<std::string, double> values, bool lose) {
        auto simulation = d.build(tcp(std::move(values)));
        simulation->add_flow(flow(0, 1, 1448));
        if (lose) {
            simulation->add_fault({0, d.bottleneck, FaultKind::down, 0, 0, 0});
            simulation->add_fault({500 * ms, d.bottleneck, FaultKind::up, 0, 0, 0});
        }
        REQUIRE(simulation->run(-1, -1));
        return simulation->results()[0].delivered_ps;
    };
    const std::int64_t plain_ps = completion({}, false);
    const std::int64_t handshake_ps = completion({{"handshake", 1}}, false) - plain_ps;
    CHECK(handshake_ps > d.rtt_ps);
    CHECK(handshake_ps < d.rtt_ps + us);
    CHECK(completion({{"handshake", 1}}, true) - plain_ps == handshake_ps + 1'000 * ms);
}

TEST_CASE("tcp: flows of one connection go on with its window") {
    const auto second_flow = [](bool persistent) {
        Dumbbell d;
        auto simulation = d.build(tcp({{"persistent", persistent ? 1 : 0}, {"handshake", 1}}));
        simulation->add_flow(flow(0, 1, 1'000'000));
        simulation->add_flow(flow(0, 1, 500'000, 50 * ms));
        REQUIRE(simulation->run(-1, -1));
        return simulation->results()[1].delivered_ps - simulation->results()[1].started_ps;
    };
    // 500 kB are 420 µs at 10 Gbit/s; a new connection needs its handshake and five rounds of slow start besides.
    CHECK(second_flow(true) < 500 * us);
    CHECK(second_flow(false) > 700 * us);
}

TEST_CASE("newreno: the window under random loss is sqrt(3/2 / p) on average") {
    // Mathis, Semke, Mahdavi, Ott 1997, equation 3, for losses that are evenly spaced; independent ones give some per cent
    // more (Ott, Kemperman, Mathis 1996: 1.31 in place of 1.22).
    for (const double p : {0.0005, 0.002}) {
        CAPTURE(p);
        Dumbbell d;
        d.rate_bps = 40e9;
        d.rtt_ps = 200 * us;
        auto simulation = d.build(tcp({{"congestion", 0}, {"ack_every", 1}, {"min_rto_ps", 1e9}}));
        simulation->add_fault({0, d.bottleneck, FaultKind::loss, p, 0, 0});
        simulation->add_flow(flow(0, 1, 4'000'000'000));
        const std::int64_t from_ps = 20 * ms, until_ps = 1'520 * ms;
        simulation->run(from_ps, -1);
        const std::uint64_t before = simulation->results()[0].delivered_bytes;
        simulation->run(until_ps, -1);
        const double packets = static_cast<double>(simulation->results()[0].delivered_bytes - before) / 1448;
        const double window =
            packets * static_cast<double>(d.rtt_ps + us) / static_cast<double>(until_ps - from_ps);
        MESSAGE("window " << window << " expected " << std::sqrt(1.5 / p) << " timeouts "
                          << simulation->results()[0].timeouts);
        CHECK(window > 0.9 * std::sqrt(1.5 / p));
        CHECK(window < 1.15 * std::sqrt(1.5 / p));
        CHECK(simulation->results()[0].timeouts == 0);
    }
}

TEST_CASE("cubic: the recorded window regains its plateau as the curve says") {
    Dumbbell d;
    d.rtt_ps = 40 * ms;
    d.rate_bps = 200e6;  // 650 packets fill it
    d.buffer_packets = 300;
    auto transport = tcp({});
    auto& recorder = dynamic_cast<TcpTransport&>(*transport);
    auto simulation = d.build(std::move(transport));
    simulation->add_flow(flow(0, 1, 100'000'000'000));
    recorder.trace_window(0);
    simulation->run(40'000 * ms, -1);
    const std::vector<TcpTracePoint>& trace = recorder.window_trace();
    // Losses show as steps of the threshold; between two of them the window is W(t) = C (t - K)³ + W_max.
    std::vector<std::size_t> steps;
    for (std::size_t i = 1; i < trace.size(); ++i) {
        if (trace[i].threshold_packets != trace[i - 1].threshold_packets) steps.push_back(i);
    }
    std::size_t curves = 0, points = 0;
    double worst = 0, plateau = 0;
    for (std::size_t s = 0; s + 1 < steps.size(); ++s) {
        const double low = trace[steps[s]].threshold_packets, peak = low / 0.7;
        // Fast convergence: a peak below the last plateau makes way.
        plateau = peak < plateau ? peak * 0.85 : peak;
        // Those after slow start and its many losses.
        if (s == 0 || trace[steps[s]].at_ps - trace[steps[s - 1]].at_ps < 5'000 * ms) continue;
        ++curves;
        CHECK(peak == doctest::Approx(trace[steps[s] - 1].window_packets).epsilon(0.001));
        const double k_s = std::cbrt((plateau - low) / 0.4);
        std::size_t start = steps[s];  // growth begins when recovery is over
        for (std::size_t i = start; i < steps[s + 1]; ++i) {
            if (trace[i].window_packets == low) start = i;
        }
        for (std::size_t i = start; i < steps[s + 1]; ++i) {
            const double t_s = static_cast<double>(trace[i].at_ps - trace[start].at_ps) * 1e-12;
            if (t_s < 0.5) continue;
            ++points;
            const double curve = 0.4 * std::pow(t_s - k_s, 3) + plateau;
            worst = std::max(worst, std::abs(trace[i].window_packets / curve - 1));
        }
    }
    MESSAGE(curves << " curves, " << points << " points, off by " << worst << " at most");
    CHECK(curves >= 2);
    CHECK(points > 10'000);
    CHECK(worst < 0.02);
}

TEST_CASE("tcp: flows share a bottleneck evenly and fill it") {
    for (const bool cubic : {false, true}) {
        CAPTURE(cubic);
        Dumbbell d;
        d.pairs = 8;
        d.rate_bps = 1e9;
        d.rtt_ps = 200 * us;
        d.buffer_packets = 100;
        auto simulation = d.build(tcp({{"congestion", cubic ? 1 : 0}, {"min_rto_ps", 1e9}}));
        for (std::uint32_t i = 0; i < d.pairs; ++i)
            simulation->add_flow(flow(i, d.pairs + i, 1'000'000'000, i * 137 * us));
        simulation->run(300 * ms, -1);
        const std::vector<std::uint64_t> before = delivered(*simulation);
        const std::uint64_t sent = simulation->packet_counters(d.bottleneck, 0).bytes_sent;
        simulation->run(2'300 * ms, -1);
        const double index = fairness(before, simulation->results());
        const double used =
            static_cast<double>(simulation->packet_counters(d.bottleneck, 0).bytes_sent - sent) * 8 / 2e9;
        MESSAGE("Jain " << index << " used " << used << " dropped " << dropped(*simulation));
        CHECK(simulation->transport().counters().at("recoveries") > 8);
        CHECK(simulation->transport().counters().at("recoveries_undone") == 0);
        CHECK(index > 0.95);
        CHECK(used > 0.97);
        CHECK(dropped(*simulation) > 0);
    }
}

TEST_CASE("dctcp: the queue is what the analysis says, the link full, the flows even") {
    // Alizadeh et al. 2010, §3.3: Q_max = K + N, oscillation ½ sqrt(2 N (C·RTT + K)), in packets.
    for (const std::uint32_t flows : {2u, 10u}) {
        CAPTURE(flows);
        Dumbbell d;
        d.pairs = flows;
        d.rtt_ps = 100 * us;
        d.mark_packets = 40;
        auto simulation = d.build(make_transport("dctcp", Parameters({{"ack_every", 1}, {"mtu_bytes", 1500}})));
        for (std::uint32_t i = 0; i < flows; ++i) {
            simulation->add_flow(flow(i, flows + i, 1'000'000'000, i * 33 * us));
        }
        simulation->sample({d.bottleneck}, 2 * us);
        const std::int64_t from_ps = 50 * ms, until_ps = 250 * ms;
        simulation->run(from_ps, -1);
        const std::vector<std::uint64_t> before = delivered(*simulation);
        const std::uint64_t sent = simulation->packet_counters(d.bottleneck, 0).bytes_sent;
        simulation->run(until_ps, -1);
        std::vector<double> depth = depths_packets(*simulation, from_ps);
        std::ranges::sort(depth);
        const double least = depth[depth.size() / 1000], most = depth[depth.size() - 1 - depth.size() / 1000];
        const double pipe = 10e9 * 100e-6 / 8 / full_bytes;
        const double swing = 0.5 * std::sqrt(2 * flows * (pipe + 40));
        const double used =
            static_cast<double>(simulation->packet_counters(d.bottleneck, 0).bytes_sent - sent) * 8 / (10e9 * 0.2);
        const double index = fairness(before, simulation->results());
        MESSAGE("depth " << least << " to " << most << ", expected " << 40 + flows - swing << " to " << 40 + flows
                         << "; used " << used << " Jain " << index);
        CHECK(most == doctest::Approx(40 + flows).epsilon(0.15));
        CHECK(most - least > 0.5 * swing);
        CHECK(most - least < 1.6 * swing);
        CHECK(used > 0.999);
        CHECK(index > 0.95);
        CHECK(dropped(*simulation) == 0);
    }
}

TEST_CASE("dctcp: its queue is a small part of TCP's") {
    const auto mean_depth = [](bool dctcp) {
        Dumbbell d;
        d.pairs = 4;
        d.mark_packets = 40;
        auto simulation = d.build(dctcp ? make_transport("dctcp", Parameters({{"mtu_bytes", 1500}}))
                                        : tcp({{"congestion", 0}, {"min_rto_ps", 1e9}}));
        for (std::uint32_t i = 0; i < d.pairs; ++i) simulation->add_flow(flow(i, d.pairs + i, 1'000'000'000));
        simulation->sample({d.bottleneck}, 10 * us);
        simulation->run(200 * ms, -1);
        const std::vector<double> depth = depths_packets(*simulation, 50 * ms);
        return std::accumulate(depth.begin(), depth.end(), 0.0) / static_cast<double>(depth.size());
    };
    const double dctcp = mean_depth(true), tcp = mean_depth(false);
    MESSAGE("packets " << dctcp << " against " << tcp);
    CHECK(dctcp < 50);
    CHECK(tcp > 4 * dctcp);
}

TEST_CASE("tcp: incast with many senders costs timeouts of the minimum, which tuning shortens") {
    // Vasudevan et al. 2009: the collapse is the minimum timeout's.
    const auto last_ms = [](double min_rto_ps) {
        Clos star;
        star.hosts = 33;
        star.host_rate_bps = 10'000'000'000;
        star.host_delay_ps = 5 * us;
        switching::Policy policy;
        policy.port_bytes = 64 * full_bytes;
        Simulation simulation(Fabric(star), policy, tcp({{"min_rto_ps", min_rto_ps}, {"tail_probe", 0}}), {});
        for (std::uint32_t i = 1; i < 33; ++i) simulation.add_flow(flow(i, 0, 64'000));
        REQUIRE(simulation.run(-1, -1));
        std::uint64_t timeouts = 0;
        std::int64_t last_ps = 0;
        for (const FlowResult& result : simulation.results()) {
            timeouts += result.timeouts;
            last_ps = std::max(last_ps, result.delivered_ps);
        }
        CHECK(timeouts > 0);
        return static_cast<double>(last_ps) * 1e-9;
    };
    const double slow = last_ms(200e9), quick = last_ms(1e9);
    MESSAGE("last after " << slow << " ms and " << quick << " ms; at the line's rate 1.7 ms");
    CHECK(slow > 200);
    CHECK(quick < 20);
}

TEST_CASE("tcp: the same for one thread and two") {
    const auto run = [](std::uint32_t threads) {
        Dumbbell d;
        d.pairs = 6;
        d.buffer_packets = 30;
        d.threads = threads;
        auto simulation = d.build(tcp({{"min_rto_ps", 1e9}, {"persistent", 1}}));
        simulation->add_fault({0, d.bottleneck, FaultKind::loss, 0.01, 0, 0});
        for (std::uint32_t i = 0; i < 60; ++i) {
            simulation->add_flow(flow(i % 6, 6 + (i * 5 + i / 6) % 6, 100'000 + i * 7'001, i * 20 * us));
        }
        REQUIRE(simulation->run(-1, -1));
        return simulation->results();
    };
    const std::vector<FlowResult> one = run(1), two = run(2);
    REQUIRE(one.size() == two.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
        CHECK(one[i].delivered_ps == two[i].delivered_ps);
        CHECK(one[i].acknowledged_ps == two[i].acknowledged_ps);
        CHECK(one[i].retransmitted_packets == two[i].retransmitted_packets);
    }
}

TEST_CASE("tcp: settings out of range are refused by name") {
    CHECK_THROWS_WITH(tcp({{"mtu_bytes", 100}}), doctest::Contains("mtu_bytes"));
    CHECK_THROWS_WITH(tcp({{"min_rto_ps", 0}}), doctest::Contains("min_rto_ps"));
    CHECK_THROWS_WITH(tcp({{"cubic_beta", 1}}), doctest::Contains("cubic_beta"));
    CHECK_THROWS_WITH(tcp({{"gian", 1}}), doctest::Contains("gian"));
    CHECK_THROWS_WITH(make_transport("dctcp", Parameters({{"gain", 2}})), doctest::Contains("gain"));
}

// DCQCN does what its paper says: the stages of figure 7, notifications no closer than 50 us, flows that start at
// different times converge to equal shares; and the fabric under it loses nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/native/run.hpp"

using namespace dlcp::sim;
namespace switching = dlcp::switching;

namespace {

constexpr std::uint32_t payload = 4096, header = 64, wire = payload + header;
constexpr std::uint64_t rate_bps = 40'000'000'000;  // the paper's
constexpr std::int64_t packet_ps = 8 * 25 * wire, header_ps = 8 * 25 * header, delay_ps = 1'000'000;

Fabric star(std::uint32_t hosts) {
    Clos shape;
    shape.hosts = hosts;
    shape.host_rate_bps = rate_bps;
    shape.host_delay_ps = delay_ps;
    return Fabric(shape);
}

Fabric fat_tree(std::uint32_t k) { return testing::fat_tree(k, rate_bps, delay_ps); }

struct Options {
    bool mark = true;
    std::uint32_t mark_from_bytes = 5'000;  // table 14
    std::uint32_t mark_full_bytes = 200'000;
    double mark_ratio = 0.01;
    std::uint32_t pause_above_bytes = 200'000;
    std::uint32_t threads = 1;
    std::uint64_t seed = 1;
};

switching::Policy lossless(const Options& options) {
    switching::Policy policy;
    for (std::size_t c = 0; c < 7; ++c)
        for (switching::Thresholds& at : policy.classes[c].level) {
            if (!options.mark) continue;
            at.mark_from_bytes = options.mark_from_bytes;
            at.mark_full_bytes = options.mark_full_bytes;
            at.mark_ratio = static_cast<std::uint16_t>(options.mark_ratio * 65535);
        }
    policy.pause_above_bytes = options.pause_above_bytes;
    policy.resume_below_bytes = options.pause_above_bytes - 2 * wire;
    return policy;
}

struct Run : testing::TransportRun {
    explicit Run(Fabric fabric, const Options& options = {}, std::map<std::string, double> parameters = {})
        : TransportRun(std::move(fabric), lossless(options),
                       make_transport("dcqcn", Parameters(std::move(parameters))),
                       {.seed = options.seed, .threads = options.threads}) {}
};

// What each flow got between two times, bits per second.
std::vector<double> shares(Run& run, std::int64_t from_ps, std::int64_t until_ps) {
    run.simulation->run(from_ps, -1);
    std::vector<double> shares;
    for (const FlowResult& result : run.simulation->results())
        shares.push_back(-static_cast<double>(result.delivered_bytes));
    run.simulation->run(until_ps, -1);
    for (std::size_t i = 0; i < shares.size(); ++i)
        shares[i] = (shares[i] + static_cast<double>(run.result(i).delivered_bytes)) * 8 /
                    (static_cast<double>(until_ps - from_ps) * 1e-12);
    return shares;
}

double jain(const std::vector<double>& values) {
    double sum = 0, squares = 0;
    for (double v : values) {
        sum += v;
        squares += v * v;
    }
    return sum * sum / (static_cast<double>(values.size()) * squares);
}

}  // namespace

TEST_CASE("dcqcn: an unloaded flow has line rate, exact to the picosecond") {
    Run run(fat_tree(4));
    const std::uint32_t far = run.add(0, 15, 489 * payload);
    const std::uint32_t small = run.add(5, 9, 1000);
    run.run();
    CHECK(run.took_ps(far) == (489 + 5) * packet_ps + 6 * delay_ps);
    CHECK(run.took_ps(small) == 6 * 8 * 25 * 1064 + 6 * delay_ps);
    CHECK(run.result(small).acknowledged_ps == run.took_ps(small) + 6 * (header_ps + delay_ps));
    CHECK(run.counter("congestion_notifications") == 0);
}

namespace {

// When host 1's card sent each packet but the last, and at what share of line rate: packet by packet.
std::vector<std::pair<std::int64_t, double>> rates_of_host_1(const Run& run) {
    std::vector<std::pair<std::int64_t, double>> rates;
    std::int64_t before = -1;
    for (const PacketRecord& record : run.simulation->recorder().packets()) {
        if (record.event != PacketEvent::sent || record.packet.type != data_packet) continue;
        if (before >= 0)
            rates.push_back(
                {before, static_cast<double>(packet_ps) / static_cast<double>(record.time_ps - before)});
        before = record.time_ps;
    }
    return rates;
}

// The last time before `until_ps` that the rate fell: by then it had been `target`.
struct Cut {
    std::int64_t at_ps = -1;
    double target = 1;
};
Cut last_cut(const std::vector<std::pair<std::int64_t, double>>& rates, std::int64_t until_ps) {
    Cut cut;
    for (std::size_t i = 1; i < rates.size() && rates[i].first < until_ps; ++i)
        if (rates[i].second < 0.97 * rates[i - 1].second) cut = {rates[i].first, rates[i - 1].second};
    REQUIRE(cut.at_ps > 0);
    return cut;
}

// In a stage of timer T, 55 us each, after a cut.
double rate_in_stage(const std::vector<std::pair<std::int64_t, double>>& rates, const Cut& cut, int stage) {
    for (const auto& [at_ps, rate] : rates)
        if (at_ps > cut.at_ps + stage * 55'000'000 + 10'000'000) return rate;
    return 0;
}

}  // namespace

TEST_CASE(
    "dcqcn: the first notification halves the rate; five stages of T each halve the distance to what it was") {
    // A burst beside a long flow leaves a queue that stands until the flow is told: all above the step are marked.
    Run run(star(3), {.mark_from_bytes = 30'000, .mark_full_bytes = 30'000});
    run.add(1, 0, 40'000'000);
    run.add(2, 0, 12 * payload, 200'000'000);
    run.simulation->trace({1}, 100'000);
    run.run();
    REQUIRE(run.counter("congestion_notifications") >= 1);
    const auto rates = rates_of_host_1(run);
    const Cut cut = last_cut(rates, INT64_MAX);
    CHECK(cut.at_ps > 200'000'000);
    double rate = 0.5;  // alpha is 1 at first
    for (int stage = 0; stage <= 5; ++stage) {
        CHECK(rate_in_stage(rates, cut, stage) == doctest::Approx(rate).epsilon(0.01));
        rate = (1 + rate) / 2;
    }
}

TEST_CASE("dcqcn: from the sixth stage on the target rises") {
    // A larger burst, and a target that follows: cut twice, the flow has half its rate to come back to.
    Run run(star(3), {.mark_from_bytes = 30'000, .mark_full_bytes = 30'000},
            {{"clamp_target", 1}, {"additive_increase_bps", 1e9}, {"notification_ps", 20e6}});
    run.add(1, 0, 40'000'000);
    run.add(2, 0, 20 * payload, 200'000'000);
    run.simulation->trace({1}, 100'000);
    run.run();
    const auto rates = rates_of_host_1(run);
    const Cut cut = last_cut(rates, 400'000'000);
    double target = cut.target, rate = rate_in_stage(rates, cut, 0);
    REQUIRE(target < 0.6);
    REQUIRE(rate < 0.6 * target);
    for (int stage = 1; stage <= 10; ++stage) {
        if (stage > 5) target += 1e9 / static_cast<double>(rate_bps);
        rate = (target + rate) / 2;
        CHECK(rate_in_stage(rates, cut, stage) == doctest::Approx(rate).epsilon(0.01));
    }
}

TEST_CASE("dcqcn: alpha fades, so that a cut after a quiet time is small") {
    Run run(star(3), {.mark_from_bytes = 30'000, .mark_full_bytes = 30'000});
    run.add(1, 0, 200'000'000);
    run.add(2, 0, 12 * payload, 200'000'000);
    run.add(2, 0, 12 * payload, 30'000'000'000);
    run.simulation->trace({1}, 100'000);
    run.run();
    const auto rates = rates_of_host_1(run);
    const Cut first = last_cut(rates, 1'000'000'000);
    double before = 1, after = 1;
    for (const auto& [at_ps, rate] : rates) {
        if (at_ps < 30'000'000'000) continue;
        if (after == 1 && rate < 0.97) {
            const double quiet = std::floor(static_cast<double>(at_ps - first.at_ps) / 55e6);
            before = std::pow(1 - 1.0 / 256, quiet);  // alpha
            after = rate;
        }
    }
    CHECK(before < 0.2);
    CHECK(after == doctest::Approx(1 - before / 2).epsilon(0.01));
}

TEST_CASE("dcqcn: beyond fast recovery the target rises by 40 Mb/s each 55 us") {
    // Two senders are cut together, again and again, while a third is there; then it ends.
    Run run(star(4), {}, {{"clamp_target", 1}, {"increase_bytes", 1e12}, {"hyper_increase_bps", 0}});
    run.add(1, 0, 400'000'000);
    run.add(2, 3, 1000);
    run.add(3, 0, 4'000'000);
    const std::vector<double> first = shares(run, 6'000'000'000, 6'550'000'000);
    const std::vector<double> later = shares(run, 11'500'000'000, 12'050'000'000);
    REQUIRE(run.result(2).delivered_ps < 6'000'000'000);
    REQUIRE(first[0] < 0.7 * static_cast<double>(rate_bps));
    // 5.5 ms are 100 periods: 4 Gb/s on the wire.
    CHECK((later[0] - first[0]) * wire / payload == doctest::Approx(100 * 40e6).epsilon(0.05));
}

TEST_CASE("dcqcn: a flow is notified at most once in 50 us") {
    Run run(star(3), {.mark_from_bytes = 0, .mark_full_bytes = 1});
    run.add(1, 0, 4'000'000);
    run.add(2, 0, 4'000'000);
    run.run();
    CHECK(run.counter("congestion_notifications") > 4);
    CHECK(run.counter("congestion_notifications") <= 2 + 2 * static_cast<double>(run.last_ps()) / 50e6);
    CHECK(run.count(&EventCounters::packets_marked) > run.counter("congestion_notifications"));
}

TEST_CASE("dcqcn: flows that start at different times converge to equal shares of a busy link") {
    Run run(star(5));
    for (std::uint32_t h = 1; h < 5; ++h) run.add(h, 0, 2'000'000'000, h * 10'000'000'000);
    const std::vector<double> early = shares(run, 41'000'000'000, 42'000'000'000);
    const std::vector<double> late = shares(run, 150'000'000'000, 200'000'000'000);
    CHECK(jain(late) >= 0.95);
    CHECK(jain(late) > jain(early));
    double sum = 0;
    for (double share : late) sum += share;
    CHECK(sum > 0.85 * static_cast<double>(rate_bps) * payload / wire);
}

TEST_CASE("dcqcn: nothing is dropped under incast; without marks it is pauses that hold it back") {
    const auto incast = [](bool mark) {
        auto run = std::make_unique<Run>(fat_tree(4), Options{.mark = mark});
        for (std::uint32_t h = 1; h < 16; ++h) run->add(h, 0, 1'000'000);
        run->run();
        CHECK(run->count(&EventCounters::packets_dropped) == 0);
        CHECK(run->sum(&FlowResult::retransmitted_packets) == 0);
        CHECK(run->sum(&FlowResult::timeouts) == 0);
        return run;
    };
    const auto marked = incast(true), paused = incast(false);
    CHECK(paused->counter("congestion_notifications") == 0);
    CHECK(paused->count(&EventCounters::pauses) > 0);
    CHECK(marked->counter("congestion_notifications") > 0);
    // At line rate the last link is never idle: the bound of an incast, exactly.
    const double ideal = 15 * (244 * static_cast<double>(packet_ps) + 8 * 25 * (1'000'000 - 244 * 4096 + 64));
    CHECK(static_cast<double>(paused->last_ps()) < 1.01 * ideal + 6e6 + 5 * static_cast<double>(packet_ps));
    // Buffers stay within what was paused for, and what was under way by then.
    std::uint32_t deepest = 0;
    const Fabric& fabric = paused->simulation->fabric();
    for (std::uint32_t p = fabric.hosts(); p < fabric.ports(); ++p)
        deepest = std::max(deepest, paused->simulation->max_depth_bytes(p, 0));
    CHECK(deepest < 3 * (200'000 + 5 * wire));
}

TEST_CASE("dcqcn: a link that loses packets is repaired by going back, and by timeouts at the end") {
    Run run(star(2));
    Fault gray;
    gray.kind = FaultKind::loss;
    gray.port = 1;
    gray.value = 0.01;
    run.simulation->add_fault(gray);
    run.add(1, 0, 4'000'000);
    run.run();
    const std::uint64_t lost = run.count(&EventCounters::packets_lost);
    CHECK(lost > 2);
    // Each loss costs what was under way as well: a round trip of packets.
    CHECK(run.sum(&FlowResult::retransmitted_packets) > 2 * lost);
    CHECK(run.counter("nacks") > 0);
    CHECK(run.counter("out_of_order") > run.counter("nacks"));
    // Once per gap: only where the repeated packet is lost too does a timeout help.
    CHECK(run.sum(&FlowResult::timeouts) <= 1);
    CHECK(run.last_ps() < 5'000'000'000);
}

TEST_CASE("dcqcn: sprayed, a permutation is near the bound; hashed per flow, it collides") {
    const auto last_ps = [](double spray) {
        Run run(fat_tree(4), {}, {{"spray", spray}});
        for (std::uint32_t h = 0; h < 16; ++h) run.add(h, (h + 5) % 16, 1'000'000);
        run.run();
        CHECK(run.sum(&FlowResult::retransmitted_packets) == 0);
        return static_cast<double>(run.last_ps());
    };
    const double bound = 245 * static_cast<double>(packet_ps);
    CHECK(last_ps(1) < 1.5 * bound);
    CHECK(last_ps(0) > 1.8 * bound);
}

TEST_CASE("dcqcn: two threads give one thread's result") {
    const auto results = [](std::uint32_t threads) {
        Run run(fat_tree(4), {.pause_above_bytes = 100'000, .threads = threads, .seed = 3});
        for (std::uint32_t h = 0; h < 16; ++h) run.add(h, (h + 5) % 16, 300'000);
        for (std::uint32_t h = 1; h < 8; ++h) run.add(h, 15, 200'000, 20'000'000);
        run.run();
        CHECK(run.count(&EventCounters::pauses) > 0);
        CHECK(run.counter("congestion_notifications") > 0);
        return run.outcome();
    };
    CHECK(results(1) == results(2));
}

TEST_CASE("dcqcn: settings out of range are named") {
    CHECK_THROWS_WITH_AS(make_transport("dcqcn", Parameters({{"gain", 2}})),
                         "dcqcn.gain is 2; accepted: numbers from 1e-09 to 1", std::invalid_argument);
}

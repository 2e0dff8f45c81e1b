// The UET-like transport does what its sources publish: permutations near the bound, incast without timeouts, repairs
// within a round trip of a trim, a queue near NSCC's target, entropies that leave bad paths.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/native/run.hpp"

using namespace dlcp::sim;
namespace switching = dlcp::switching;

namespace {

constexpr std::uint32_t payload = 4096, header = 64, wire = payload + header;
constexpr std::uint64_t rate_bps = 100'000'000'000;
constexpr std::int64_t packet_ps = 8 * 10 * wire, header_ps = 8 * 10 * header, delay_ps = 1'000'000;

Fabric fat_tree(std::uint32_t k) { return testing::fat_tree(k, rate_bps, delay_ps); }

Fabric leaf_spine(std::uint32_t leaves, std::uint32_t hosts, std::uint32_t spines) {
    Clos shape;
    shape.edges = leaves;
    shape.hosts = hosts;
    shape.aggregations = spines;
    shape.host_rate_bps = shape.edge_rate_bps = rate_bps;
    shape.host_delay_ps = shape.edge_delay_ps = delay_ps;
    return Fabric(shape);
}

// Round trip over `links` links, and what the network holds in that time.
constexpr std::int64_t round_trip_ps(int links) { return links * (packet_ps + header_ps + 2 * delay_ps); }
constexpr std::uint32_t product_bytes(int links) {
    return static_cast<std::uint32_t>(round_trip_ps(links) / 80);  // 100 Gb/s: a byte is 80 ps
}

struct Options {
    int links = 6;  // that the switches' thresholds are set for
    bool trim = true;
    bool mark = true;
    switching::PathChoice path_choice = switching::PathChoice::path_id;
    std::uint32_t threads = 1;
    std::uint64_t seed = 1;
};

switching::Policy policy_of(const Options& options) {
    switching::Policy policy;
    policy.path_choice = options.path_choice;
    const std::uint32_t product = product_bytes(options.links);
    for (std::size_t c = 0; c < 7; ++c)
        for (switching::Thresholds& at : policy.classes[c].level) {
            if (options.mark) {
                at.mark_from_bytes = product / 5;
                at.mark_full_bytes = product * 4 / 5;
            }
            (options.trim ? at.trim_above_bytes : at.drop_above_bytes) = product;
        }
    return policy;
}

std::unique_ptr<Transport> transport_of(const Options& options, std::map<std::string, double> parameters) {
    if (!options.trim) parameters["trimming"] = 0;
    return make_transport("uet", Parameters(std::move(parameters)));
}

struct Run : testing::TransportRun {
    explicit Run(Fabric fabric, const Options& options = {}, std::map<std::string, double> parameters = {})
        : TransportRun(std::move(fabric), policy_of(options), transport_of(options, std::move(parameters)),
                       {.seed = options.seed, .threads = options.threads}) {}
};

// Flow i of a permutation: each host sends to the one that many hosts on.
void add_permutation(Run& run, std::uint32_t hosts, std::uint32_t step, std::uint64_t bytes) {
    for (std::uint32_t h = 0; h < hosts; ++h) run.add(h, (h + step) % hosts, bytes);
}

}  // namespace

TEST_CASE("uet: an unloaded flow is exact to the picosecond: the window covers the round trip") {
    Run run(fat_tree(4));
    const std::uint32_t far = run.add(0, 15, 489 * payload);
    const std::uint32_t near = run.add(2, 3, 5 * payload);
    const std::uint32_t small = run.add(5, 9, 1000);
    run.run();
    CHECK(run.took_ps(far) == (489 + 5) * packet_ps + 6 * delay_ps);
    CHECK(run.took_ps(near) == (5 + 1) * packet_ps + 2 * delay_ps);
    CHECK(run.took_ps(small) == 6 * 8 * 10 * 1064 + 6 * delay_ps);
    CHECK(run.result(small).acknowledged_ps == run.took_ps(small) + 6 * (header_ps + delay_ps));
    CHECK(run.count(&EventCounters::packets_marked) == 0);
    // One acknowledgement for four packets, not for each.
    CHECK(run.counter("acks") == doctest::Approx(489 / 4 + 1 + 2 + 1).epsilon(0.02));
}

TEST_CASE("uet: a permutation over a fat-tree ends near the bound, without timeouts") {
    Run run(fat_tree(4));
    add_permutation(run, 16, 5, 1'000'000);
    run.run();
    const std::int64_t bound = (245 + 5) * packet_ps + 6 * delay_ps;
    CHECK(run.last_ps() >= bound);
    CHECK(static_cast<double>(run.last_ps()) < 1.25 * static_cast<double>(bound));
    CHECK(run.sum(&FlowResult::timeouts) == 0);
    CHECK(run.count(&EventCounters::packets_dropped) == 0);
}

TEST_CASE("uet: incast is repaired by negative acknowledgements alone, and the last link never idles long") {
    Run run(fat_tree(4));
    for (std::uint32_t h = 1; h < 16; ++h) run.add(h, 0, 500'000);
    run.run();
    CHECK(run.sum(&FlowResult::timeouts) == 0);
    CHECK(run.count(&EventCounters::packets_dropped) == 0);
    CHECK(run.count(&EventCounters::packets_trimmed) > 0);
    CHECK(run.sum(&FlowResult::retransmitted_packets) == run.count(&EventCounters::packets_trimmed));
    CHECK(run.counter("nacks") == static_cast<double>(run.count(&EventCounters::packets_trimmed)));
    CHECK(run.counter("duplicates") == 0);
    CHECK(run.counter("quick_adapts") > 0);
    // A window that only gave up a packet for each trim would cost half as many again.
    CHECK(run.count(&EventCounters::packets_trimmed) < 1000);
    // 15 · 500 kB on one link (uet-htsim is within 1 % for flows of 2 MB, docs/simulator/validation.md; here the start weighs more).
    const double ideal = 15 * (122 * static_cast<double>(packet_ps) + 288 * 80 + header_ps);
    CHECK(static_cast<double>(run.last_ps()) < 1.04 * ideal);
}

TEST_CASE("uet: a trimmed packet is sent again within a round trip of being trimmed") {
    // A long flow, and a burst from another host that finds its queue.
    Run run(leaf_spine(1, 3, 0), {.links = 2});
    run.add(1, 0, 4'000'000);
    run.add(2, 0, 20 * payload, 100'000'000);
    const std::uint32_t last_hop = run.simulation->fabric().reverse(0);
    run.simulation->trace({0, 1, 2, last_hop}, 100'000);
    run.run();
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> trimmed;  // flow and number: when
    std::uint64_t repaired = 0, at_once = 0;
    for (const PacketRecord& record : run.simulation->recorder().packets()) {
        const std::pair<std::uint32_t, std::uint32_t> key{record.packet.flow, record.packet.number};
        if (record.packet.type != data_packet) continue;
        if (record.port == last_hop && record.event == PacketEvent::trimmed) {
            trimmed[key] = record.time_ps;
        } else if (record.port != last_hop && record.event == PacketEvent::sent && trimmed.contains(key)) {
            ++repaired;
            at_once += record.time_ps - trimmed[key] <= round_trip_ps(2);
            trimmed.erase(key);
        }
    }
    CHECK(trimmed.empty());
    REQUIRE(repaired > 5);
    CHECK(at_once == repaired);
}

TEST_CASE("uet: two long flows share a link, whose queue stays around NSCC's target") {
    Run run(leaf_spine(1, 3, 0), {.links = 2});
    run.add(1, 0, 12'000'000);
    run.add(2, 0, 12'000'000, 200'000'000);
    const std::uint32_t last_hop = run.simulation->fabric().reverse(0);
    run.simulation->sample({last_hop}, 1'000'000);
    run.run();
    double sum = 0, most = 0;
    std::uint64_t samples = 0, idle = 0;
    const Recorder::Series series = run.simulation->recorder().series();
    for (std::size_t i = 0; i < series.time_ps.size(); ++i) {
        if (series.time_ps[i] < 600'000'000 || series.time_ps[i] > 1'600'000'000) continue;
        const std::uint32_t depth = series.depth_bytes[i * switching::traffic_classes];
        sum += depth;
        most = std::max(most, static_cast<double>(depth));
        idle += depth == 0;
        ++samples;
    }
    REQUIRE(samples > 900);
    const double target = 0.75 * product_bytes(2);
    CHECK(sum / static_cast<double>(samples) > 0.2 * target);
    CHECK(sum / static_cast<double>(samples) < 1.1 * target);
    CHECK(static_cast<double>(idle) < 0.05 * static_cast<double>(samples));
    CHECK(most <= product_bytes(2) + wire);
    // Fair: they overlap from 200 us on; who came second ends a little later.
    CHECK(static_cast<double>(run.took_ps(1)) < 1.15 * static_cast<double>(run.took_ps(0)));
}

TEST_CASE("uet: entropies leave a slow path; random spraying does not") {
    const auto last_ps = [](switching::PathChoice choice) {
        Run run(leaf_spine(2, 8, 8), {.links = 4, .path_choice = choice});
        // One of eight spines gives a tenth of its rate towards leaf 1.
        const std::uint32_t spine = 16 + 2;
        Fault slow;
        slow.kind = FaultKind::rate;
        slow.port = run.simulation->fabric().port_between(spine, 16 + 1);
        slow.value = 10e9;
        run.simulation->add_fault(slow);
        for (std::uint32_t h = 0; h < 7; ++h) run.add(h, 8 + h, 4'000'000);
        run.run();
        return static_cast<double>(run.last_ps());
    };
    const double adaptive = last_ps(switching::PathChoice::path_id);
    const double oblivious = last_ps(switching::PathChoice::random);
    CHECK(adaptive < 0.6 * oblivious);
    CHECK(adaptive < 1.35 * (977 * static_cast<double>(packet_ps) + 4 * delay_ps));
}

TEST_CASE("uet: entropies that come back marked sit out, before anything is trimmed") {
    Run run(leaf_spine(2, 8, 8), {.links = 4});
    Fault slow;
    slow.kind = FaultKind::rate;
    slow.port = run.simulation->fabric().port_between(16 + 2, 16 + 1);
    slow.value = 70e9;
    run.simulation->add_fault(slow);
    for (std::uint32_t h = 0; h < 7; ++h) run.add(h, 8 + h, 4'000'000);
    run.run();
    // Seven flows want seven eighths of each spine's rate; who did not listen to marks would send it 10.4 % of all.
    const double share = run.simulation->packet_counters(slow.port, 0).packets_sent / (7.0 * 977);
    CHECK(share < 0.095);
    CHECK(share > 0.05);
    CHECK(run.count(&EventCounters::packets_trimmed) < 0.01 * 7 * 977);
}

TEST_CASE("uet: a dead path is left: what it took is found by later packets, entropies on it sit out") {
    Run run(leaf_spine(2, 4, 4), {.links = 4});
    Fault down;
    down.kind = FaultKind::down;
    down.port = run.simulation->fabric().port_between(8, 8 + 2 + 1);
    down.at_ps = 50'000'000;
    run.simulation->add_fault(down);
    for (std::uint32_t h = 0; h < 3; ++h) run.add(h, 4 + h, 8'000'000);
    run.run();
    // A quarter of 5,862 packets would be lost without entropies; that a path is tried now and then costs some.
    CHECK(run.count(&EventCounters::packets_lost) > 0);
    CHECK(run.count(&EventCounters::packets_lost) < 5862 / 20);
    CHECK(run.sum(&FlowResult::timeouts) <= 6);
    CHECK(static_cast<double>(run.last_ps()) < 1.5 * (1954 * static_cast<double>(packet_ps)));
}

TEST_CASE("uet: random loss is found by later packets; only the last ones wait for a timeout") {
    Run run(fat_tree(4));
    Fault gray;
    gray.kind = FaultKind::loss;
    gray.port = 0;
    gray.value = 0.02;
    run.simulation->add_fault(gray);
    run.add(0, 12, 8'000'000);
    run.run();
    const std::uint64_t lost = run.count(&EventCounters::packets_lost);
    CHECK(lost > 20);
    CHECK(run.sum(&FlowResult::retransmitted_packets) >= lost);
    CHECK(run.sum(&FlowResult::retransmitted_packets) <= lost + lost / 10 + 1);
    CHECK(run.sum(&FlowResult::timeouts) <= 2);
}

TEST_CASE("uet: where switches drop instead of trimming, incast still ends, close to the link's rate") {
    Run run(fat_tree(4), {.trim = false});
    for (std::uint32_t h = 1; h < 16; ++h) run.add(h, 0, 500'000);
    run.run();
    CHECK(run.count(&EventCounters::packets_trimmed) == 0);
    CHECK(run.count(&EventCounters::packets_dropped) > 0);
    // Of what is dropped only probes are not sent again.
    CHECK(static_cast<double>(run.sum(&FlowResult::retransmitted_packets)) + run.counter("probes") >=
          static_cast<double>(run.count(&EventCounters::packets_dropped)));
    const double ideal = 15 * (122 * static_cast<double>(packet_ps) + 288 * 80 + header_ps);
    CHECK(static_cast<double>(run.last_ps()) < 1.5 * ideal);
}

TEST_CASE(
    "uet: who hears nothing asks after some round trips; without such probes a lost tail waits for the timeout") {
    const auto took = [](double probe) {
        Run run(leaf_spine(1, 2, 0), {.links = 2}, {{"probe", probe}});
        Fault fault;
        fault.port = run.simulation->fabric().reverse(1);
        fault.kind = FaultKind::down;
        fault.at_ps = 5'000'000;
        run.simulation->add_fault(fault);
        fault.kind = FaultKind::up;
        fault.at_ps = 8'000'000;  // the last of 15 packets leaves at 5 us
        run.simulation->add_fault(fault);
        run.add(0, 1, 15 * payload);
        run.run();
        CHECK(run.count(&EventCounters::packets_lost) > 2);
        CHECK(run.sum(&FlowResult::timeouts) == (probe == 0 ? 1 : 0));
        CHECK((run.counter("probes") > 0) == (probe != 0));
        return run.last_ps();
    };
    CHECK(took(1) < 8 * round_trip_ps(2));
    CHECK(took(0) > 8 * round_trip_ps(2));
}

TEST_CASE("uet: acknowledgements far apart do not stop a small window") {
    Run run(fat_tree(4), {}, {{"ack_bytes", 65'536}, {"probe", 0}});
    for (std::uint32_t h = 1; h < 16; ++h) run.add(h, 0, 500'000);
    run.run();
    CHECK(run.sum(&FlowResult::timeouts) == 0);
}

TEST_CASE("uet: two threads give one thread's result") {
    const auto results = [](std::uint32_t threads) {
        Run run(fat_tree(4), {.threads = threads, .seed = 7});
        add_permutation(run, 16, 5, 300'000);
        for (std::uint32_t h = 1; h < 8; ++h) run.add(h, 15, 100'000, 20'000'000);
        Fault gray;
        gray.kind = FaultKind::loss;
        gray.port = run.simulation->fabric().first_port(16) + 2;
        gray.value = 0.05;
        run.simulation->add_fault(gray);
        run.run();
        CHECK(run.count(&EventCounters::packets_lost) > 0);
        CHECK(run.count(&EventCounters::packets_trimmed) > 0);
        return run.outcome();
    };
    CHECK(results(1) == results(2));
}

TEST_CASE("uet: settings out of range are named") {
    CHECK_THROWS_WITH_AS(make_transport("uet", Parameters({{"entropies", 100}})),
                         "uet.entropies is 100; accepted: powers of two", std::invalid_argument);
    CHECK_THROWS_WITH_AS(make_transport("uet", Parameters({{"window", 3}})),
                         "transport \"uet\" has no setting \"window\"", std::invalid_argument);
}

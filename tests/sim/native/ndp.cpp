// NDP does what its paper says: closed forms where there are some, incast without timeouts, fair pulls, repairs.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
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

switching::Policy trimming(std::uint32_t queue_packets, std::uint32_t header_queue_bytes) {
    switching::Policy policy;
    for (switching::Thresholds& at : policy.classes[7].level) at.drop_above_bytes = header_queue_bytes;
    for (std::size_t c = 0; c < 7; ++c)
        for (switching::Thresholds& at : policy.classes[c].level) at.trim_above_bytes = (queue_packets - 1) * wire;
    return policy;
}

struct Run : testing::TransportRun {
    explicit Run(Fabric fabric, std::map<std::string, double> parameters = {}, std::uint32_t queue_packets = 35,
                 SimulationSettings settings = {}, std::uint32_t header_queue_bytes = switching::never)
        : TransportRun(std::move(fabric), trimming(queue_packets, header_queue_bytes),
                       make_transport("ndp", Parameters(std::move(parameters))), settings) {}
    std::uint64_t dropped() const { return count(&EventCounters::packets_dropped); }
};

}  // namespace

TEST_CASE("ndp: an unloaded flow is exact to the picosecond, with the window that its round trip needs") {
    Run run(fat_tree(4));
    const std::uint32_t far = run.add(0, 15, 489 * payload);
    const std::uint32_t near = run.add(2, 3, 5 * payload);
    const std::uint32_t small = run.add(5, 9, 1000);
    run.run();
    CHECK(run.took_ps(far) == (489 + 5) * packet_ps + 6 * delay_ps);
    CHECK(run.took_ps(near) == (5 + 1) * packet_ps + 2 * delay_ps);
    CHECK(run.took_ps(small) == 6 * 8 * 10 * 1064 + 6 * delay_ps);
    CHECK(run.result(small).acknowledged_ps == run.took_ps(small) + 6 * (header_ps + delay_ps));
    CHECK(run.sum(&FlowResult::timeouts) == 0);
    CHECK(run.sum(&FlowResult::retransmitted_packets) == 0);
}

TEST_CASE("ndp: on an idle path each pull rides in the answer that it is due with") {
    Run run(fat_tree(4), {{"window_packets", 60}});
    run.add(0, 15, 400 * payload);
    run.run();
    CHECK(run.counter("pulls") == 400 - 60);
    CHECK(run.simulation->hops() == 2 * 6 * 400);  // a packet and an answer each
}

TEST_CASE("ndp: a window smaller than the round trip leaves the link idle") {
    Run run(fat_tree(4), {{"window_packets", 10}});
    const std::uint32_t flow = run.add(0, 15, 400 * payload);
    run.run();
    const std::int64_t rtt_ps = 6 * (packet_ps + delay_ps) + 6 * (header_ps + delay_ps);
    // Ten packets a round trip, but for the first window's burst, which each round repeats.
    CHECK(run.took_ps(flow) ==
          doctest::Approx(39.0 * static_cast<double>(rtt_ps) + 15.0 * packet_ps).epsilon(0.02));
}

TEST_CASE("ndp: incast ends without timeouts, as fast as the receiver's link allows") {
    for (const std::uint32_t senders : {4U, 32U, 100U}) {
        CAPTURE(senders);
        Run run(fat_tree(8), {{"window_packets", 50}});
        for (std::uint32_t i = 1; i <= senders; ++i) run.add((37 * i) % 127 + 1, 0, 100 * payload);
        run.run();
        const double bound_ps = static_cast<double>(senders) * 100 * packet_ps + 5 * packet_ps + 6 * delay_ps;
        const auto last_ps = static_cast<double>(run.last_ps());
        // Pulls are paced at the link's rate, not at 0.99 of it. What is lost is the round trip between the end of the
        // first window's queue and the first pulled packet, and the headers' share of the link.
        const double headers_ps = run.counter("trimmed_packets") * header_ps;
        CHECK(last_ps >= bound_ps);
        CHECK(last_ps <= bound_ps + headers_ps + 14e6 * (senders == 4 ? 0.2 : 1));
        if (senders == 32) CHECK(last_ps <= 1.02 * bound_ps);
        CHECK(run.sum(&FlowResult::timeouts) == 0);
        CHECK(run.dropped() == 0);
        CHECK(run.counter("lost_packets") == 0);
    }
}

TEST_CASE("ndp: senders are pulled in turns, so that those who started together end together") {
    Run run(fat_tree(8), {{"window_packets", 1}});  // nobody has a head start from the first window
    for (std::uint32_t i = 0; i < 60; ++i) run.add(128 - 60 + i, 0, 100 * payload);
    run.run();
    std::int64_t first_ps = INT64_MAX;
    for (const FlowResult& result : run.simulation->results()) first_ps = std::min(first_ps, result.delivered_ps);
    CHECK(run.last_ps() - first_ps <= 60 * packet_ps + 14'000'000);
}

TEST_CASE("ndp: every trimmed packet is sent again once, and nothing else is") {
    Run run(fat_tree(8), {{"window_packets", 50}}, 8);
    for (std::uint32_t i = 1; i <= 20; ++i) run.add((37 * i) % 127 + 1, 0, 150 * payload);
    run.run();
    const double trimmed = run.counter("trimmed_packets");
    CHECK(trimmed > 0);
    CHECK(static_cast<double>(run.sum(&FlowResult::retransmitted_packets)) == trimmed);
    CHECK(run.sum(&FlowResult::sent_packets) == 20 * 150);
    // As many pulls as packets beyond the first windows, trimmed ones included: none is wasted.
    CHECK(run.counter("pulls") == 20 * (150 - 50) + trimmed);
}

TEST_CASE("ndp: what was trimmed is sent again before anything new") {
    Run run(fat_tree(8), {{"window_packets", 50}}, 8);
    for (std::uint32_t i = 0; i < 20; ++i) run.add(100 + i, 0, 150 * payload);
    run.simulation->trace({100}, 1'000'000);  // a host's port has the host's number
    run.run();
    std::vector<std::uint32_t> numbers;
    for (const PacketRecord& record : run.simulation->recorder().packets())
        if (record.event == PacketEvent::sent && !record.packet.reverse) numbers.push_back(record.packet.number);
    // All answers to the first window come before the first pull: from then on old numbers leave until none is left.
    const auto is_new = [](std::uint32_t number) { return number >= 50; };
    const auto first_new = std::find_if(numbers.begin(), numbers.end(), is_new);
    CHECK(first_new - numbers.begin() > 50 + 30);
    CHECK(*first_new == 50);
    std::vector<std::uint32_t> first(numbers.begin(), first_new);
    std::sort(first.begin(), first.end());
    first.erase(std::unique(first.begin(), first.end()), first.end());
    CHECK(first.size() == 50);
}

TEST_CASE("ndp: a short flow to a host that long flows keep busy waits for little more than the queue") {
    Run run(fat_tree(8), {{"window_packets", 50}}, 8);
    for (std::uint32_t i = 1; i <= 10; ++i) run.add(8 * i, 0, 1000 * payload);
    const std::uint32_t brief = run.add(100, 0, 5 * payload, 300'000'000);
    run.run();
    const std::int64_t bound_ps = 10 * packet_ps + 6 * delay_ps;
    // Trimmed packets, all five at worst, wait for a turn among eleven each, come a round trip later and find 8 waiting.
    CHECK(run.took_ps(brief) <= bound_ps + 14'000'000 + (5 * 11 + 8) * packet_ps);
}

TEST_CASE("ndp: a permutation runs near the bound with small queues") {
    Run run(fat_tree(8), {{"window_packets", 50}}, 8);
    for (std::uint32_t h = 0; h < 128; ++h)
        run.add(h, (h * 37 + 64) % 128 == h ? (h + 1) % 128 : (h * 37 + 64) % 128, 250 * payload);
    run.run();
    double mean_ps = 0;
    for (std::uint32_t f = 0; f < 128; ++f) mean_ps += static_cast<double>(run.took_ps(f)) / 128;
    CHECK(mean_ps <= 1.25 * (255.0 * packet_ps + 6 * delay_ps));
    CHECK(run.sum(&FlowResult::timeouts) == 0);
}

TEST_CASE("ndp: the result is the same for any number of threads") {
    std::vector<std::vector<std::int64_t>> outcomes;
    for (const std::uint32_t threads : {1U, 2U, 4U}) {
        SimulationSettings settings;
        settings.threads = threads;
        Run run(fat_tree(4), {}, 8, settings);
        for (std::uint32_t h = 0; h < 16; ++h) {
            run.add(h, (h + 5) % 16, 60 * payload);
            if (h != 0) run.add(h, 0, 20 * payload + h);
        }
        run.run();
        outcomes.push_back(run.outcome());
    }
    CHECK(outcomes[0] == outcomes[1]);
    CHECK(outcomes[0] == outcomes[2]);
}

TEST_CASE("ndp: what a link loses, of any kind, timeouts repair") {
    for (const double loss_ratio : {0.01, 0.3}) {
        CAPTURE(loss_ratio);
        Run run(fat_tree(4), {{"rto_ps", 100e6}});
        const std::uint32_t flow = run.add(0, 15, 300 * payload);
        run.add(15, 0, 300 * payload);
        Fault fault;
        fault.kind = FaultKind::loss;
        fault.value = loss_ratio;
        for (const std::uint32_t host : {0U, 15U}) {
            fault.port = host;
            run.simulation->add_fault(fault);
        }
        run.run();
        CHECK(run.sum(&FlowResult::timeouts) > 0);
        CHECK(run.result(flow).delivered_bytes == 300 * payload);
        // Lost pulls are made good by the count in the next answer: one per cent costs some timeouts at the end, not one each.
        if (loss_ratio < 0.1) CHECK(run.took_ps(flow) < 1'000'000'000);
    }
}

TEST_CASE("ndp: a link that is down for a while holds its flow up for a timeout, not for good") {
    Run run(fat_tree(4), {{"rto_ps", 200e6}});
    const std::uint32_t flow = run.add(0, 15, 500 * payload);
    Fault fault;
    fault.port = 0;
    fault.at_ps = 20'000'000;
    run.simulation->add_fault(fault);
    fault.at_ps = 120'000'000;
    fault.kind = FaultKind::up;
    run.simulation->add_fault(fault);
    run.run();
    CHECK(run.took_ps(flow) > 500 * packet_ps + 100'000'000);
    CHECK(run.took_ps(flow) < 500 * packet_ps + 700'000'000);
}

TEST_CASE("ndp: headers that overrun their queue are asked for again, and do not come back in a burst") {
    Run run(fat_tree(8), {{"window_packets", 50}}, 8, {}, 64 * 20);
    for (std::uint32_t i = 1; i <= 127; ++i) run.add(i, 0, 100 * payload);
    run.run();
    CHECK(run.dropped() > 1000);
    const double lost = run.counter("lost_packets");
    const double trimmed = run.counter("trimmed_packets");
    CHECK(lost == static_cast<double>(run.dropped()));
    CHECK(static_cast<double>(run.sum(&FlowResult::retransmitted_packets)) == lost + trimmed);
    // One timeout per sender, not one per packet; meanwhile the link has others to serve.
    CHECK(run.sum(&FlowResult::timeouts) <= 2 * 127);
    CHECK(static_cast<double>(run.last_ps()) <= 1.02 * 127 * 100 * packet_ps);
}

TEST_CASE("ndp: flows that wait long for their pulls do not lose patience again and again") {
    Run run(fat_tree(4), {{"rto_ps", 100e6}, {"window_packets", 5}});
    for (std::uint32_t i = 0; i < 1500; ++i) run.add(1 + i % 15, 0, 30 * payload);
    run.run();
    // A turn among 1500 takes half a millisecond, five timeouts.
    CHECK(run.counter("lost_packets") == 0);
    CHECK(run.sum(&FlowResult::timeouts) <= 4 * 1500);
}

TEST_CASE("ndp: over a link longer than the timeout nothing is taken for lost") {
    constexpr std::int64_t far_ps = 5'000'000'000;  // 5 ms
    Run run(Fabric(2, 2, {{0, 2, rate_bps, delay_ps}, {1, 3, rate_bps, delay_ps}, {2, 3, rate_bps, far_ps}}));
    const std::uint32_t flow = run.add(0, 1, 1000 * payload);
    run.run();
    CHECK(run.took_ps(flow) == (1000 + 2) * packet_ps + 2 * delay_ps + far_ps);
    CHECK(run.sum(&FlowResult::retransmitted_packets) == 0);
}

TEST_CASE("ndp: settings out of range are refused with their value") {
    CHECK_THROWS_WITH(make_transport("ndp", Parameters({{"paths", 48}})), doctest::Contains("paths is 48"));
    CHECK_THROWS_WITH(make_transport("ndp", Parameters({{"payload_bytes", 70'000}})),
                      doctest::Contains("payload_bytes is 70000; accepted: whole numbers from 1 to 65000"));
    CHECK_THROWS_WITH(make_transport("ndp", Parameters({{"window_packets", -1}})), doctest::Contains("-1"));
    CHECK_THROWS_WITH(make_transport("ndp", Parameters({{"rto_ps", 0}})), doctest::Contains("rto_ps is 0"));
    CHECK_THROWS_WITH(make_transport("ndp", Parameters({{"window", 1}})), doctest::Contains("\"window\""));
}

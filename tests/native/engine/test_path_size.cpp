// A path that stops to carry large packets while a session is up: found, left, and nothing lost by it.
#include <utility>

#include "native/engine/pair_scenario.hpp"

using namespace dlcp;
using namespace dlcp::test;

namespace {

constexpr std::uint32_t large_message = 8 << 20;

LinkSettings narrow_link(std::uint64_t most_bytes, double loss_ratio = 0.0, bool runs_pass = false) {
    return {.max_datagram = Bytes{most_bytes},
            .runs_pass = runs_pass,
            .delay = microseconds(20),
            .loss_ratio = loss_ratio};
}

std::uint16_t datagram_bytes(Net& net, std::uint32_t from, std::uint32_t to) {
    Endpoint& endpoint = net.world.endpoint(from);
    return endpoint.peer_statistics(*endpoint.find_peer(to)).max_datagram_bytes;
}

struct Narrowing {
    EndpointConfig config = plain_config();
    std::uint64_t most_bytes = 1240;
    bool there = true;
    bool back = true;
    std::uint16_t expected_there = 1232;
    std::uint16_t expected_back = 1472;  // nothing large leaves host 1
    double loss_ratio = 0.0;
    HostSettings host{};
};

// A transfer is under way when the path becomes narrow; a second one follows when the size is found.
void check_narrowing(const Narrowing& n, bool bounded = false) {
    Net net(n.config);
    net.connect_all();
    const SendPlan plan = bounded ? bounded_message(large_message, 0.05, 0.1) : message(large_message);
    net.exchange(plan);
    net.run_for(milliseconds(2));
    REQUIRE(net.world.open_sends() == 1);
    const Time narrowed = net.world.now();
    if (n.there) net.network().set_between(0, 1, narrow_link(n.most_bytes, n.loss_ratio));
    if (n.back) net.network().set_between(1, 0, narrow_link(n.most_bytes, n.loss_ratio));
    net.world.run(narrowed + seconds(1), [&] { return datagram_bytes(net, 0, 1) == n.expected_there; });
    CHECK(datagram_bytes(net, 0, 1) == n.expected_there);
    net.finish(seconds(1));
    CHECK(net.world.now() - narrowed < seconds(1));
    CHECK(datagram_bytes(net, 1, 0) == n.expected_back);
    CHECK(net.world.counters(0).datagrams_shrunk == (n.expected_there == n.config.max_datagram_bytes ? 0 : 1));
    // Later messages have blocks that fit: no more pieces.
    const std::uint64_t control = net.world.counters(0).control_packets_sent;
    net.exchange(message(1 << 20));
    net.finish(seconds(1));
    CHECK(net.world.counters(0).control_packets_sent - control < 100);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(net.send(i).phase == Phase::finished);
        CHECK(net.receive(i).phase == Phase::finished);
    }
    net.check();
}

}  // namespace

TEST_CASE("path size: large packets vanish in both directions under a transfer") { check_narrowing({}); }

TEST_CASE("path size: large packets vanish on the way there only") { check_narrowing({.back = false}); }

TEST_CASE("path size: with keys, and encrypted") {
    check_narrowing({.config = keyed_config()});
    check_narrowing({.config = keyed_config(true)});
}

TEST_CASE("path size: from jumbo frames to little, in many pieces") {
    EndpointConfig config = plain_config();
    config.max_datagram_bytes = 8972;
    check_narrowing({.config = config, .most_bytes = 1472, .expected_there = 1472, .expected_back = 8972});
    check_narrowing({.config = config, .most_bytes = 548, .expected_there = 548, .expected_back = 8972});
}

TEST_CASE("path size: single packets vanish while runs of them pass") {
    for (const double loss_ratio : {0.0, 0.01}) {
        // Under a transfer of which the runs go on.
        Net net(keyed_config());
        net.connect_all();
        net.exchange(message(large_message));
        net.run_for(milliseconds(2));
        for (const auto& [from, to] : {std::pair{0u, 1u}, {1u, 0u}})
            net.network().set_between(from, to, narrow_link(1240, loss_ratio, true));
        SendPlan single = message(net.world.endpoint(0).block_bytes(*net.world.endpoint(0).find_peer(1)));
        single.traffic_class = 5;
        net.exchange(single);
        net.finish(seconds(1));
        CHECK(datagram_bytes(net, 0, 1) == 1232);
        net.check();
    }
    // From the first hello on.
    Net net;
    for (const auto& [from, to] : {std::pair{0u, 1u}, {1u, 0u}})
        net.network().set_between(from, to, narrow_link(1422, 0, true));
    net.connect_all();
    net.exchange(message(100'000));
    net.finish(seconds(1));
    CHECK(datagram_bytes(net, 0, 1) == 1422);
    CHECK(net.world.counters(0).datagrams_shrunk == 0);
    net.check();
}

TEST_CASE("path size: random loss beside it") { check_narrowing({.loss_ratio = 0.01}); }

TEST_CASE("path size: a bounded message under way keeps its blocks and its account") { check_narrowing({}, true); }

TEST_CASE("path size: every congestion control goes on") {
    for (const char* name : {"window", "line_rate", "auto"}) {
        CAPTURE(name);
        EndpointConfig config = plain_config();
        config.congestion = congestion_algorithm(name);
        config.line_rate = Rate{10'000'000'000};
        check_narrowing({.config = config});
    }
}

TEST_CASE("path size: only answers are too large") {
    // Many messages end at once, so that the answers are long lists; the way back carries short ones only.
    Net net;
    net.connect_all();
    for (int i = 0; i < 2000; ++i) net.exchange(message(64));
    net.network().set_between(1, 0, narrow_link(600));
    const Time start = net.world.now();
    net.finish(seconds(1));
    CHECK(net.world.now() - start < seconds(1));
    net.check();
}

TEST_CASE("path size: blocks pass with a short header and not with a long one") {
    Net net;
    net.connect_all();
    net.exchange(message(large_message));
    net.run_for(milliseconds(2));
    const Time narrowed = net.world.now();
    for (const auto& [from, to] : {std::pair{0u, 1u}, {1u, 0u}})
        net.network().set_between(from, to, narrow_link(1450, 0));
    // Messages of one full block: nothing of them is acknowledged before, so they have long headers.
    for (int i = 0; i < 5; ++i)
        net.exchange(message(net.world.endpoint(0).block_bytes(*net.world.endpoint(0).find_peer(1))));
    net.finish(seconds(1));
    CHECK(net.world.now() - narrowed < seconds(1));
    CHECK(datagram_bytes(net, 0, 1) == 1448);
    net.check();
}

TEST_CASE("path size: one of several paths loses large packets: it is left, the size stays") {
    EndpointConfig config = plain_config();
    config.paths = 4;
    Net net(config);
    net.connect_all();
    LinkSettings way = plain_link();
    way.paths.push_back({.path = 2, .max_datagram = Bytes{1000}});
    net.network().set_between(0, 1, way);
    std::uint32_t downs = 0;
    net.world.on_event = [&](std::uint32_t, const Event& event) {
        downs += event.kind == EventKind::path_down && event.value == 2;
    };
    net.exchange(message(large_message));
    net.finish(seconds(1));
    CHECK(datagram_bytes(net, 0, 1) == 1472);
    CHECK(downs == 1);
    net.check();
}

TEST_CASE("path size: loss by chance does not change it") {
    for (const double loss : {0.05, 0.3, 0.5}) {
        CAPTURE(loss);
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
            Net net(plain_config(), 2, seed);
            net.connect_all();
            net.network().set_between(0, 1, lossy_link(loss));
            net.network().set_between(1, 0, lossy_link(loss));
            for (int i = 0; i < 20; ++i) net.exchange(message(20'000));
            net.finish(seconds(60));
            CHECK(net.world.counters(0).datagrams_shrunk == 0);
            net.check();
        }
    }
}

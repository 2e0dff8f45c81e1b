// Two or three endpoints, a fake network, a virtual clock: what the protocol promises, one promise per test. The world
// (support/native/world.hpp) checks everything else at every step of each of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "support/native/world.hpp"

// Allocations of this program, counted while `counting` is set.
namespace {
bool counting = false;
std::uint64_t allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
    if (counting) ++allocations;
    void* const result = alignment <= alignof(std::max_align_t)
                             ? std::malloc(bytes != 0 ? bytes : 1)
                             : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (result == nullptr) throw std::bad_alloc();
    return result;
}
}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace dlcp::test {
namespace {

EndpointConfig plain_config() {
    EndpointConfig config;
    config.peer_timeout = seconds(1);
    config.max_rto = milliseconds(20);
    config.initial_rtt = milliseconds(1);
    return config;
}

EndpointConfig keyed_config(bool encrypt = false) {
    EndpointConfig config = plain_config();
    config.job_key.emplace();
    config.job_key->fill(0x42);
    config.encrypt = encrypt;
    return config;
}

// Hosts that know each other, on links of 10 Gbit/s and 20 us.
struct Net {
    explicit Net(const EndpointConfig& config = plain_config(), std::uint32_t hosts = 2, std::uint64_t seed = 1)
        : world(seed) {
        for (std::uint32_t i = 0; i < hosts; ++i) world.add_host(config);
        port.rate = Rate{10'000'000'000};
        port.queue = Bytes{4'000'000};  // more than the window's target delay puts there
        for (std::uint32_t i = 0; i < hosts; ++i) {
            world.network().set_uplink(i, port);
            world.network().set_downlink(i, port);
            for (std::uint32_t j = 0; j < hosts; ++j) {
                if (i != j) world.network().set_way(i, j, way());
            }
        }
    }
    static LinkSettings way() {
        LinkSettings result;
        result.delay = microseconds(20);
        return result;
    }
    void connect_all() {
        for (std::uint32_t i = 0; i < world.hosts(); ++i) {
            for (std::uint32_t j = 0; j < world.hosts(); ++j) {
                if (i != j) REQUIRE(world.connect(i, j) == CommandError::none);
            }
        }
        const bool done = world.run(world.now() + seconds(1), [&] {
            for (std::uint32_t i = 0; i < world.hosts(); ++i) {
                for (std::uint32_t j = 0; j < world.hosts(); ++j) {
                    if (i != j && !world.established(i, j)) return false;
                }
            }
            return true;
        });
        REQUIRE(done);
    }
    // Posts the receive that a send needs.
    std::size_t receive_for(const SendPlan& plan) {
        return world.receive({.at = plan.to,
                              .from = plan.from,
                              .tag = plan.tag,
                              .capacity_bytes = plan.message_bytes,
                              .is_virtual = plan.is_virtual});
    }
    bool finish(Duration within = seconds(10)) {
        return world.run(world.now() + within, [&] { return world.open_sends() + world.open_receives() == 0; });
    }
    // The world has seen nothing wrong, also after a while of rest.
    void check() {
        world.run_until(world.now() + seconds(5));
        world.finish();
        CHECK(world.failure() == "");
    }
    World world;
    LinkSettings port;
};

Duration took(const Record& record) { return record.over - record.posted; }

}  // namespace

TEST_CASE("endpoint pair: messages of many sizes arrive, with and without a key") {
    for (int protection = 0; protection < 3; ++protection) {
        CAPTURE(protection);
        Net net(protection == 0 ? plain_config() : keyed_config(protection == 2));
        net.connect_all();
        std::uint64_t tag = 0;
        for (const std::uint32_t bytes : {0u, 1u, 100u, 1391u, 1392u, 1393u, 1408u, 1409u, 20'000u, 300'000u}) {
            const SendPlan plan{.from = 0, .to = 1, .tag = ++tag, .message_bytes = bytes};
            net.receive_for(plan);
            net.world.send(plan);
        }
        REQUIRE(net.finish());
        for (const SendRecord& send : net.world.sends()) CHECK(send.phase == Phase::finished);
        CHECK(net.world.counters(0).repair_packets_sent == 0);
        CHECK(net.world.counters(1).duplicate_blocks == 0);
        net.check();
    }
}

TEST_CASE("endpoint pair: a send before the handshake leaves once it is over") {
    Net net;
    const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 5000};
    net.world.send(plan);
    net.receive_for(plan);
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].phase == Phase::finished);
    // Two round trips of handshake, one of data, and room for timers.
    CHECK(took(net.world.sends()[0]) < milliseconds(5));
    net.check();
}

TEST_CASE("endpoint pair: an undisturbed transfer takes little longer than the link") {
    Net net;
    net.connect_all();
    const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 10'000'000};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    const Duration ideal = time_to_send(Bytes{10'000'000}, net.port.rate);
    CHECK(took(net.world.receives()[0]) < ideal * 3 / 2);
    CHECK(net.world.counters(0).repair_packets_sent == 0);
    CHECK(net.world.network().count(Fate::lost_queue) == 0);
    net.check();
}

TEST_CASE("endpoint pair: every congestion algorithm fills a link without loss") {
    for (const auto algorithm :
         {congestion_algorithm("window"), congestion_algorithm("line_rate"), congestion_algorithm("credit")}) {
        CAPTURE(static_cast<int>(algorithm));
        EndpointConfig config = plain_config();
        config.congestion = algorithm;
        config.line_rate = Rate{10'000'000'000};
        Net net(config);
        net.connect_all();
        const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 5'000'000};
        net.receive_for(plan);
        net.world.send(plan);
        REQUIRE(net.finish());
        CHECK(took(net.world.receives()[0]) < time_to_send(Bytes{5'000'000}, net.port.rate) * 2);
        net.check();
    }
}

TEST_CASE("endpoint pair: loss is repaired, and a lost tail costs no long timeout") {
    Net net;
    LinkSettings lossy = Net::way();
    lossy.loss_ratio = 0.05;
    net.world.network().set_way(0, 1, lossy);
    net.world.network().set_way(1, 0, lossy);
    net.connect_all();
    for (std::uint64_t tag = 1; tag <= 100; ++tag) {
        const SendPlan plan{.from = 0, .to = 1, .tag = tag, .message_bytes = 20'000};
        net.receive_for(plan);
        net.world.send(plan);
        REQUIRE(net.finish());
        CHECK(net.world.sends().back().phase == Phase::finished);
    }
    // A lost tail costs a probe timeout of a few hundred microseconds, not TCP's 200 ms.
    std::vector<std::int64_t> times;
    for (const ReceiveRecord& receive : net.world.receives()) times.push_back(took(receive).value);
    std::sort(times.begin(), times.end());
    CHECK(times[50] < 400'000);
    CHECK(times[98] < 5'000'000);
    CHECK(net.world.counters(0).repair_packets_sent > 50);
    net.check();
}

TEST_CASE("endpoint pair: a bounded message does not wait for what it may lose") {
    Net net;
    LinkSettings lossy = Net::way();
    lossy.loss_ratio = 0.02;
    net.world.network().set_way(0, 1, lossy);
    net.connect_all();
    const SendPlan plan{.from = 0,
                        .to = 1,
                        .tag = 1,
                        .message_bytes = 2'000'000,
                        .delivery = Delivery::bounded,
                        .loss_ratio = 0.1,
                        .critical_ratio = 0.0};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    const SendRecord& send = net.world.sends()[0];
    CHECK(send.outcome.abandoned_blocks > 0);
    CHECK(send.outcome.abandoned_bytes < 0.05 * plan.message_bytes);
    CHECK(send.outcome.retransmitted_bytes == 0);
    net.check();
}

TEST_CASE("endpoint pair: what exceeds the budget is repaired, most important first") {
    Net net;
    net.connect_all();
    LinkSettings lossy = Net::way();
    lossy.loss_ratio = 0.4;
    net.world.network().set_way(0, 1, lossy);
    // The network heals as soon as the first pass is over, so that each repair succeeds.
    net.world.watch_packets([&](std::uint32_t host, const wire::Header& header) {
        if (host == 0 && header.type == wire::Type::data && (header.flags & wire::flag::first_pass_over) != 0) {
            net.world.network().set_way(0, 1, Net::way());
        }
    });
    std::vector<std::uint32_t> repaired;
    net.world.network().observe([&](const PacketRecord& record) {
        wire::Datagram datagram;
        if (record.fate != Fate::sent || wire::parse(record.bytes, 0, datagram) != wire::ParseError::none) return;
        if ((datagram.header.flags & wire::flag::repair) != 0) repaired.push_back(datagram.header.block_index);
    });
    const SendPlan plan{.from = 0,
                        .to = 1,
                        .tag = 1,
                        .message_bytes = 500'000,
                        .delivery = Delivery::bounded,
                        .loss_ratio = 0.2,
                        .critical_ratio = 0.0};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    const SendRecord& send = net.world.sends()[0];
    REQUIRE(send.outcome.abandoned_blocks > 0);
    REQUIRE(!repaired.empty());
    // Nothing that was given up matters more than anything that was repaired, losses found late aside.
    std::vector<int> given_up, kept;
    for (std::uint32_t i = 0; i < send.outcome.blocks; ++i) {
        if ((send.abandoned[i / 64] >> i % 64 & 1) != 0) given_up.push_back(send.importance[i]);
    }
    for (const std::uint32_t block : repaired) kept.push_back(send.importance[block]);
    std::sort(given_up.begin(), given_up.end());
    std::sort(kept.begin(), kept.end());
    CHECK(given_up[given_up.size() * 9 / 10] <= kept[kept.size() / 10]);
    net.check();
}

TEST_CASE("endpoint pair: critical blocks arrive through any loss, droppable ones within the budget") {
    Net net;
    LinkSettings lossy = Net::way();
    lossy.loss_ratio = 0.3;
    net.world.network().set_way(0, 1, lossy);
    net.world.network().set_way(1, 0, lossy);
    net.connect_all();
    const SendPlan plan{.from = 0,
                        .to = 1,
                        .tag = 1,
                        .message_bytes = 400'000,
                        .delivery = Delivery::bounded,
                        .loss_ratio = 0.1,
                        .critical_ratio = 0.5};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].phase == Phase::finished);
    CHECK(net.world.sends()[0].outcome.abandoned_blocks > 0);
    net.check();
}

TEST_CASE("endpoint pair: a deadline ends a message with what is there") {
    Net net;
    net.connect_all();
    LinkSettings slow = net.port;
    slow.rate = Rate{100'000'000};  // 1 MB would take 80 ms
    net.world.network().set_uplink(0, slow);
    const SendPlan plan{.from = 0,
                        .to = 1,
                        .tag = 1,
                        .message_bytes = 1'000'000,
                        .delivery = Delivery::deadline,
                        .loss_ratio = 0.01,
                        .deadline = milliseconds(10),
                        .critical_ratio = 0.0};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    const ReceiveRecord& receive = net.world.receives()[0];
    CHECK(receive.phase == Phase::finished);
    CHECK(took(receive) >= milliseconds(10));
    CHECK(took(receive) < milliseconds(12));
    CHECK(receive.outcome.abandoned_bytes > 0.8 * plan.message_bytes);
    net.check();
}

TEST_CASE("endpoint pair: a deadline waits for critical blocks") {
    Net net;
    net.connect_all();
    LinkSettings slow = net.port;
    slow.rate = Rate{100'000'000};
    net.world.network().set_uplink(0, slow);
    const SendPlan plan{.from = 0,
                        .to = 1,
                        .tag = 1,
                        .message_bytes = 200'000,
                        .delivery = Delivery::deadline,
                        .loss_ratio = 0.01,
                        .deadline = microseconds(100),
                        .critical_ratio = 0.5};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].phase == Phase::finished);
    CHECK(net.world.sends()[0].outcome.abandoned_bytes > 0);
    net.check();
}

TEST_CASE("endpoint pair: the handshake finds what the path carries") {
    EndpointConfig config = plain_config();
    config.max_datagram_bytes = 8972;
    Net net(config);
    LinkSettings narrow = Net::way();
    narrow.max_datagram = Bytes{1472};
    net.world.network().set_way(0, 1, narrow);
    net.connect_all();
    CHECK(net.world.endpoint(0).block_bytes(*net.world.endpoint(0).find_peer(1)) <= 1472 - 64);
    const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 100'000};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].phase == Phase::finished);
    CHECK(net.world.sends()[0].outcome.block_bytes > 500);
    net.check();
}

TEST_CASE("endpoint pair: data before its receive is kept, up to the bound, then held back") {
    EndpointConfig config = plain_config();
    config.max_unexpected = Bytes{50'000};
    Net net(config);
    net.connect_all();
    bool bound_reached = false;
    net.world.on_event = [&](std::uint32_t host, const Event& event) {
        if (host == 1 && event.kind == EventKind::bound_reached) bound_reached = true;
    };
    for (std::uint64_t tag = 1; tag <= 5; ++tag) {
        net.world.send({.from = 0, .to = 1, .tag = tag, .message_bytes = 20'000});
    }
    net.world.run_until(net.world.now() + milliseconds(50));
    CHECK(bound_reached);
    for (std::uint64_t tag = 5; tag >= 1; --tag) {  // the other way round
        net.world.receive({.at = 1, .from = 0, .tag = tag, .capacity_bytes = 20'000});
    }
    REQUIRE(net.finish());
    for (const SendRecord& send : net.world.sends()) CHECK(send.phase == Phase::finished);
    net.check();
}

TEST_CASE("endpoint pair: waiting for a receive costs few packets") {
    EndpointConfig config = plain_config();
    config.max_unexpected = Bytes{0};
    Net net(config);
    net.connect_all();
    net.world.send({.from = 0, .to = 1, .tag = 1, .message_bytes = 20'000});
    net.world.run_until(net.world.now() + seconds(1));
    const std::uint64_t before = net.world.network().count(Fate::sent);
    net.world.run_until(net.world.now() + seconds(10));
    // Two packets per longest timeout would be 1000; a storm would be millions.
    CHECK(net.world.network().count(Fate::sent) - before < 1'500);
    net.world.receive({.at = 1, .from = 0, .tag = 1, .capacity_bytes = 20'000});
    REQUIRE(net.finish());
    net.check();
}

TEST_CASE("endpoint pair: a receive that is too small refuses, on both sides, and leaves its buffer alone") {
    Net net;
    net.connect_all();
    net.world.receive({.at = 1, .from = 0, .tag = 1, .capacity_bytes = 10'000});
    net.world.send({.from = 0, .to = 1, .tag = 1, .message_bytes = 10'001});
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].error == CommandError::refused);
    CHECK(net.world.receives()[0].error == CommandError::receive_too_small);
    net.check();
}

TEST_CASE("endpoint pair: either side can cancel") {
    Net net;
    net.connect_all();
    LinkSettings slow = net.port;
    slow.rate = Rate{100'000'000};
    net.world.network().set_uplink(0, slow);
    for (const bool sender : {true, false}) {
        CAPTURE(sender);
        const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 3'000'000};
        const std::size_t receive = net.receive_for(plan);
        const std::size_t send = net.world.send(plan);
        net.world.run_until(net.world.now() + milliseconds(20));
        sender ? net.world.cancel_send(send) : net.world.cancel_receive(receive);
        REQUIRE(net.finish());
        CHECK(net.world.sends()[send].error == (sender ? CommandError::cancelled : CommandError::peer_cancelled));
        CHECK(net.world.receives()[receive].error ==
              (sender ? CommandError::peer_cancelled : CommandError::cancelled));
    }
    net.check();
}

TEST_CASE("endpoint pair: higher classes leave first") {
    EndpointConfig config = plain_config();
    Net net(config);
    net.port.strict_priority = true;
    net.world.network().set_uplink(0, net.port);
    net.connect_all();
    const SendPlan bulk{.from = 0, .to = 1, .tag = 1, .message_bytes = 5'000'000, .traffic_class = 0};
    const SendPlan urgent{.from = 0, .to = 1, .tag = 2, .message_bytes = 20'000, .traffic_class = 6};
    net.receive_for(bulk);
    net.receive_for(urgent);
    net.world.send(bulk);
    net.world.run_until(net.world.now() + milliseconds(1));
    net.world.send(urgent);
    REQUIRE(net.finish());
    CHECK(took(net.world.sends()[1]) < microseconds(500));
    net.check();
}

TEST_CASE("endpoint pair: a dead path is left, and used again when it is back") {
    EndpointConfig config = plain_config();
    config.paths = 4;
    config.run_packets = 4;
    Net net(config);
    net.connect_all();
    LinkSettings broken = Net::way();
    broken.paths = {{2, 1.0, {0}}};
    net.world.network().set_way(0, 1, broken);
    bool down = false, up = false;
    net.world.on_event = [&](std::uint32_t host, const Event& event) {
        if (host == 0 && event.kind == EventKind::path_down && event.value == 2) down = true;
        if (host == 0 && event.kind == EventKind::path_up && event.value == 2) up = true;
    };
    const auto transfer = [&](std::uint64_t tag, std::uint32_t bytes = 3'000'000) {
        const SendPlan plan{.from = 0, .to = 1, .tag = tag, .message_bytes = bytes};
        net.receive_for(plan);
        net.world.send(plan);
        REQUIRE(net.finish());
        return took(net.world.sends().back());
    };
    transfer(1);
    CHECK(down);
    const std::uint64_t lost = net.world.network().count(Fate::lost_path);
    CHECK(transfer(2) < milliseconds(8));
    CHECK(net.world.network().count(Fate::lost_path) - lost < 50);
    net.world.network().set_way(0, 1, Net::way());
    for (std::uint64_t tag = 3; tag < 300 && !up; ++tag) {
        transfer(tag, 100'000);
        net.world.run_until(net.world.now() + milliseconds(200));
    }
    CHECK(up);
    net.check();
}

TEST_CASE("endpoint pair: an incast does not overflow the receiver's socket") {
    EndpointConfig config = plain_config();
    config.receive_buffer = Bytes{200'000};
    Net net(config, 4);
    // All hosts reach the receiver faster than it reads: its inbox is what fills.
    LinkSettings fast;
    for (std::uint32_t i = 0; i < 4; ++i) {
        net.world.network().set_uplink(i, net.port);
        net.world.network().set_downlink(i, fast);
    }
    net.world.network().set_inbox(0, Bytes{220'000});
    net.connect_all();
    for (std::uint32_t from = 1; from < 4; ++from) {
        const SendPlan plan{.from = from, .to = 0, .tag = from, .message_bytes = 2'000'000};
        net.receive_for(plan);
        net.world.send(plan);
    }
    REQUIRE(net.finish());
    CHECK(net.world.network().count(Fate::lost_inbox) == 0);
    net.check();
}

TEST_CASE("endpoint pair: marks keep a queue short") {
    Net net({plain_config()}, 3);
    LinkSettings port = net.port;
    port.ecn_mark_above = Bytes{50'000};
    port.queue = Bytes{2'000'000};
    net.world.network().set_downlink(0, port);
    net.connect_all();
    for (std::uint32_t from = 1; from < 3; ++from) {
        const SendPlan plan{.from = from, .to = 0, .tag = from, .message_bytes = 10'000'000};
        net.receive_for(plan);
        net.world.send(plan);
    }
    REQUIRE(net.finish());
    CHECK(net.world.network().count(Fate::marked) > 0);
    CHECK(net.world.network().count(Fate::lost_queue) == 0);
    CHECK(net.world.counters(0).ce_packets_received == net.world.network().count(Fate::marked));
    // 20 MB over one link, shared fairly enough that neither takes much longer.
    for (const ReceiveRecord& receive : net.world.receives()) CHECK(took(receive) < milliseconds(25));
    net.check();
}

TEST_CASE("endpoint pair: a peer that restarts fails what was under way, and is there again") {
    Net net(keyed_config());
    net.connect_all();
    net.world.allowed.restarts = true;
    LinkSettings slow = net.port;
    slow.rate = Rate{10'000'000};
    net.world.network().set_uplink(0, slow);
    const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 100'000};
    net.receive_for(plan);
    net.world.send(plan);
    net.world.run_until(net.world.now() + milliseconds(20));
    net.world.restart(1);
    REQUIRE(net.world.connect(1, 0) == CommandError::none);
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].error == CommandError::peer_restarted);
    CHECK(took(net.world.sends()[0]) < milliseconds(100));
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    CHECK(net.world.sends()[1].phase == Phase::finished);
    net.check();
}

TEST_CASE("endpoint pair: a peer that is gone is given up after peer_timeout, not before and not much later") {
    Net net;
    net.connect_all();
    net.world.allowed.timeouts = true;
    net.world.stop(1);
    Duration down_after{0};
    net.world.on_event = [&](std::uint32_t, const Event& event) {
        if (event.kind == EventKind::peer_down) down_after = event.waited;
    };
    net.world.send({.from = 0, .to = 1, .tag = 1, .message_bytes = 100'000});
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].error == CommandError::peer_timeout);
    CHECK(took(net.world.sends()[0]) >= milliseconds(990));
    CHECK(took(net.world.sends()[0]) <= milliseconds(1200));
    CHECK(down_after >= seconds(1));
    net.world.run_until(net.world.now() + seconds(30));
    net.world.finish();
    CHECK(net.world.failure() == "");
}

TEST_CASE("endpoint pair: goodbye fails what is under way at once") {
    Net net;
    net.connect_all();
    net.world.allowed.closes = true;
    LinkSettings slow = net.port;
    slow.rate = Rate{100'000'000};
    net.world.network().set_uplink(1, slow);
    const SendPlan plan{.from = 1, .to = 0, .tag = 1, .message_bytes = 3'000'000};
    net.receive_for(plan);
    net.world.send(plan);
    net.world.send({.from = 0, .to = 1, .tag = 2, .message_bytes = 0});
    net.world.receive({.at = 0, .from = 1, .tag = 3, .capacity_bytes = 10});
    net.world.run_until(net.world.now() + milliseconds(20));
    net.world.close(1);
    REQUIRE(net.finish(seconds(1)));
    CHECK(net.world.sends()[0].error == CommandError::closed);
    for (const ReceiveRecord& receive : net.world.receives()) CHECK(receive.error == CommandError::peer_closed);
    net.check();
}

TEST_CASE("endpoint pair: another key, or none, is nobody") {
    World world(1);
    world.add_host(keyed_config());
    EndpointConfig other = keyed_config();
    other.job_key->fill(0x43);
    world.add_host(other);
    world.add_host(plain_config());
    for (std::uint32_t i = 0; i < 3; ++i) {
        for (std::uint32_t j = 0; j < 3; ++j) {
            if (i != j) world.connect(i, j);
        }
    }
    world.allowed.timeouts = true;
    world.run_until(Time{0} + milliseconds(500));
    for (std::uint32_t i = 0; i < 3; ++i) {
        for (std::uint32_t j = 0; j < 3; ++j) {
            if (i != j) CHECK(!world.established(i, j));
        }
    }
    CHECK(world.counters(0).bad_tag > 0);
    CHECK(world.counters(0).unauthenticated > 0);
    CHECK(world.counters(2).unauthenticated > 0);
    CHECK(world.failure() == "");
}

TEST_CASE("endpoint pair: endpoints of one incarnation exchange messages") {
    EndpointConfig config = keyed_config();
    config.incarnation = 0xfedcba9876543210;
    Net net(config);
    net.connect_all();
    const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 4096};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].phase == Phase::finished);
    net.check();
}

TEST_CASE("endpoint pair: nothing of an endpoint of another incarnation enters") {
    // 0 is what an endpoint that knows of no incarnation has.
    for (const std::uint64_t stale : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63 | 2}) {
        CAPTURE(stale);
        World world(1);
        EndpointConfig config = keyed_config();
        config.incarnation = 2;
        world.add_host(config);
        config.incarnation = stale;
        world.add_host(config);
        world.receive({.at = 0, .from = 1, .tag = 1, .capacity_bytes = 4096});
        world.send({.from = 1, .to = 0, .tag = 1, .message_bytes = 4096});
        world.allowed.timeouts = true;
        world.run_until(Time{0} + milliseconds(500));
        CHECK(!world.established(0, 1));
        CHECK(!world.established(1, 0));
        CHECK(world.counters(0).bad_tag > 0);
        CHECK(world.counters(0).data_packets_received == 0);
        CHECK(world.counters(1).bad_tag > 0);
        CHECK(world.failure() == "");
    }
}

TEST_CASE("endpoint pair: damaged packets are dropped and repaired, never delivered") {
    for (const bool encrypt : {false, true}) {
        CAPTURE(encrypt);
        Net net(keyed_config(encrypt));
        LinkSettings damaging = Net::way();
        damaging.corrupt_ratio = 0.1;
        damaging.duplicate_ratio = 0.1;
        damaging.truncate_ratio = 0.05;
        net.world.network().set_way(0, 1, damaging);
        net.world.network().set_way(1, 0, damaging);
        net.connect_all();
        const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 500'000};
        net.receive_for(plan);
        net.world.send(plan);
        REQUIRE(net.finish());
        CHECK(net.world.sends()[0].phase == Phase::finished);
        const Counters& counters = net.world.counters(1);
        CHECK(counters.bad_tag > 0);
        CHECK(counters.replayed > 0);
        net.check();
    }
}

TEST_CASE("endpoint pair: keys can change while messages are under way") {
    Net net(keyed_config());
    net.connect_all();
    const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 2'000'000};
    net.receive_for(plan);
    net.world.send(plan);
    for (int i = 0; i < 3; ++i) {
        net.world.run_until(net.world.now() + microseconds(200));
        net.world.advance_key_epoch(i % 2 == 0 ? 0 : 1);
    }
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].phase == Phase::finished);
    CHECK(net.world.counters(1).bad_tag == 0);
    CHECK(net.world.counters(0).bad_tag == 0);
    net.check();
}

TEST_CASE("endpoint pair: messages of one tag are received in the order sent") {
    Net net;
    LinkSettings way = Net::way();
    way.loss_ratio = 0.05;
    way.jitter = microseconds(20);
    net.world.network().set_way(0, 1, way);
    net.connect_all();
    for (int i = 0; i < 20; ++i) {
        net.world.receive({.at = 1, .from = 0, .tag = 9, .capacity_bytes = 10'000});
        net.world.send({.from = 0, .to = 1, .tag = 9, .message_bytes = 5'000 + static_cast<std::uint32_t>(i)});
    }
    REQUIRE(net.finish());
    for (std::size_t i = 0; i < 20; ++i) CHECK(net.world.receives()[i].outcome.message_bytes == 5'000 + i);
    net.check();
}

TEST_CASE("endpoint pair: virtual payload goes the same way") {
    Net net;
    LinkSettings way = Net::way();
    way.loss_ratio = 0.02;
    net.world.network().set_way(0, 1, way);
    net.connect_all();
    const SendPlan plan{.from = 0,
                        .to = 1,
                        .tag = 1,
                        .message_bytes = 500'000,
                        .is_virtual = true,
                        .delivery = Delivery::bounded,
                        .loss_ratio = 0.05,
                        .critical_ratio = 0.2};
    net.receive_for(plan);
    net.world.send(plan);
    REQUIRE(net.finish());
    CHECK(net.world.sends()[0].phase == Phase::finished);
    net.check();
}

TEST_CASE("endpoint pair: a clock whose low 32 bits wrap makes no difference") {
    const auto run = [](Time origin) {
        World world(5, origin);
        for (int i = 0; i < 2; ++i) world.add_host(plain_config());
        LinkSettings way = Net::way();
        way.rate = Rate{1'000'000'000};
        way.loss_ratio = 0.02;
        world.network().set_way(0, 1, way);
        world.network().set_way(1, 0, way);
        world.receive({.at = 1, .from = 0, .tag = 1, .capacity_bytes = 1'000'000});
        world.send({.from = 0,
                    .to = 1,
                    .tag = 1,
                    .message_bytes = 1'000'000,
                    .delivery = Delivery::bounded,
                    .loss_ratio = 0.05,
                    .critical_ratio = 0.1});
        world.run(origin + seconds(10), [&] { return world.open_sends() + world.open_receives() == 0; });
        CHECK(world.failure() == "");
        REQUIRE(world.sends()[0].phase == Phase::finished);
        return took(world.sends()[0]).value;
    };
    const std::int64_t wrap = std::int64_t{1} << 32;
    CHECK(run(Time{wrap - 3'000'000}) == run(Time{wrap / 2}));
}

TEST_CASE("endpoint pair: one seed, one trace") {
    const auto hash = [](std::uint64_t seed) {
        Net net(keyed_config(), 2, seed);
        LinkSettings way = Net::way();
        way.loss_ratio = 0.05;
        net.world.network().set_way(0, 1, way);
        net.connect_all();
        const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 200'000};
        net.receive_for(plan);
        net.world.send(plan);
        net.finish();
        return net.world.trace_hash();
    };
    CHECK(hash(1) == hash(1));
    CHECK(hash(1) != hash(2));
}

// Memory. A link of fixed arrays, so that whatever is allocated is the engines' doing.

namespace {

class TrivialLink {
public:
    explicit TrivialLink(const dlcp_address& source) : source_(source), packets_(capacity) {}

    void send(const dlcp_packet& packet) {
        REQUIRE(count_ < capacity);
        Stored& to = packets_[count_++];
        to.length = packet.head_bytes + packet.body_bytes + packet.tail_bytes;
        REQUIRE(to.length <= to.bytes.size());
        std::copy_n(packet.head, packet.head_bytes, to.bytes.data());
        std::copy_n(packet.body, packet.body_bytes, to.bytes.data() + packet.head_bytes);
        std::copy_n(packet.head + packet.head_bytes, packet.tail_bytes,
                    to.bytes.data() + packet.head_bytes + packet.body_bytes);
        to.tos = packet.tos;
        to.path = packet.path;
    }
    // Everything sent so far arrives.
    std::size_t deliver(Time now, Endpoint& endpoint) {
        const std::size_t total = count_;
        for (std::size_t i = 0; i < total;) {
            std::array<dlcp_packet, 64> batch{};
            std::size_t n = 0;
            for (; n < batch.size() && i < total; ++n, ++i) {
                batch[n].head = packets_[i].bytes.data();
                batch[n].head_bytes = packets_[i].length;
                batch[n].address = &source_;
                batch[n].tos = packets_[i].tos;
                batch[n].path = packets_[i].path;
            }
            endpoint.handle_packets(now, {batch.data(), n});
        }
        count_ = 0;
        return total;
    }

private:
    static constexpr std::size_t capacity = 8192;
    struct Stored {
        std::array<std::uint8_t, 1500> bytes{};
        std::uint32_t length = 0;
        std::uint16_t path = 0;
        std::uint8_t tos = 0;
    };
    dlcp_address source_;
    std::vector<Stored> packets_;
    std::size_t count_ = 0;
};

}  // namespace

TEST_CASE("endpoint pair: nothing is allocated per packet or message once the tables have grown") {
    for (const bool key : {false, true}) {
        CAPTURE(key);
        EndpointConfig config = key ? keyed_config() : plain_config();
        const std::array<dlcp_address, 2> addresses = {VirtualNetwork::address(0), VirtualNetwork::address(1)};
        std::vector<std::unique_ptr<Endpoint>> endpoints;
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            config.rank = rank;
            endpoints.push_back(std::make_unique<Endpoint>(config, rank + 1, Time{0}));
        }
        std::array<TrivialLink, 2> links{TrivialLink(addresses[0]), TrivialLink(addresses[1])};  // by sender
        constexpr std::size_t slots = 32;
        const std::unique_ptr<std::uint8_t[]> heads(new std::uint8_t[slots * DLCP_HEAD_CAPACITY]);
        std::array<dlcp_packet, slots> packets{};

        constexpr std::uint32_t message_bytes = 30'000;
        constexpr std::uint64_t messages_in_flight = 4;
        std::vector<std::uint8_t> payload(message_bytes, 1);
        std::vector<std::uint8_t> buffer(message_bytes * messages_in_flight);
        const PeerId to = endpoints[0]->connect(Time{0}, 1, addresses[1]).value;
        const PeerId from = endpoints[1]->connect(Time{0}, 0, addresses[0]).value;
        std::uint64_t next_tag = 0;
        Time now{0};
        const auto start_message = [&] {
            const std::uint64_t tag = next_tag++;
            ReceiveCommand receive;
            receive.peer = from;
            receive.tag = tag;
            receive.buffer = buffer.data() + tag % messages_in_flight * message_bytes;
            receive.capacity_bytes = message_bytes;
            REQUIRE(endpoints[1]->receive(now, receive));
            SendCommand send;
            send.peer = to;
            send.tag = tag;
            send.payload = payload.data();
            send.message_bytes = message_bytes;
            REQUIRE(endpoints[0]->send(now, send));
        };
        std::uint64_t finished = 0;
        const auto run_messages = [&](std::uint64_t until) {
            for (int steps = 0; finished < until; ++steps) {
                REQUIRE(steps < 1'000'000);
                now = now + microseconds(10);
                for (std::size_t i = 0; i < 2; ++i) {
                    links[1 - i].deliver(now, *endpoints[i]);
                    if (endpoints[i]->next_deadline() <= now) endpoints[i]->handle_timer(now);
                    for (;;) {
                        for (std::size_t s = 0; s < slots; ++s) {
                            packets[s] = {};
                            packets[s].head = heads.get() + s * DLCP_HEAD_CAPACITY;
                        }
                        const std::size_t count = endpoints[i]->poll_transmit(now, packets);
                        if (count == 0) break;
                        for (std::size_t s = 0; s < count; ++s) links[i].send(packets[s]);
                    }
                    for (Event event; endpoints[i]->poll_event(event);) {
                        if (event.kind == EventKind::peer_established || event.kind == EventKind::path_down ||
                            event.kind == EventKind::path_up) {
                            continue;
                        }
                        REQUIRE(event.error == CommandError::none);
                        REQUIRE(endpoints[i]->release(event.message) == CommandError::none);
                        if (event.kind == EventKind::send_finished) {
                            ++finished;
                            start_message();
                        }
                    }
                }
            }
        };
        for (std::uint64_t i = 0; i < messages_in_flight; ++i) start_message();
        run_messages(2'000);  // warm-up: the ring of message ids has grown as far as it may

        const std::uint64_t packets_before = endpoints[0]->counters().data_packets_sent;
        allocations = 0;
        counting = true;
        run_messages(7'000);
        counting = false;
        CHECK(endpoints[0]->counters().data_packets_sent - packets_before > 100'000);
        CHECK(allocations == 0);
    }
}

}  // namespace dlcp::test

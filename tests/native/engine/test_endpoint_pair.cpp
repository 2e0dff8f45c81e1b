// Two or more endpoints, a fake network, a virtual clock: what the protocol promises, one promise per test. Most are
// scenarios (pair_scenario.hpp); the world checks everything else at every step of each of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "pair_scenario.hpp"

namespace dlcp::test {

TEST_CASE("endpoint pair: messages of many sizes arrive, with and without a key") {
    for (const EndpointConfig& config : {plain_config(), keyed_config(false), keyed_config(true)}) {
        CAPTURE(config.encrypt);
        Scenario scenario{.config = config, .expected = {.also = [](Net& net) {
                                                CHECK(net.world.counters(0).repair_packets_sent == 0);
                                                CHECK(net.world.counters(1).duplicate_blocks == 0);
                                            }}};
        for (const std::uint32_t bytes : {0, 1, 100, 1391, 1392, 1393, 1408, 1409, 20'000, 300'000})
            scenario.messages.push_back(message(bytes));
        run(scenario);
    }
}

TEST_CASE("endpoint pair: a send before the handshake leaves once it is over") {
    Net net;
    const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 5000};
    net.world.send(plan);
    net.post_receive(plan);
    net.finish();
    CHECK(net.send(0).phase == Phase::finished);
    // Two round trips of handshake, one of data, and room for timers.
    CHECK(took(net.send(0)) < milliseconds(5));
    net.check();
}

TEST_CASE("endpoint pair: an undisturbed transfer takes little longer than the link") {
    run({.messages = {message(10'000'000)},
         .expected = {.received_within = time_to_send(Bytes{10'000'000}, port().rate) * 3 / 2,
                      .also = [](Net& net) {
                          CHECK(net.world.counters(0).repair_packets_sent == 0);
                          CHECK(net.network().count(Fate::lost_queue) == 0);
                      }}});
}

TEST_CASE("endpoint pair: every congestion algorithm fills a link without loss") {
    for (const char* const algorithm : {"window", "line_rate", "auto"}) {
        CAPTURE(algorithm);
        EndpointConfig config = plain_config();
        config.congestion = congestion_algorithm(algorithm);
        config.line_rate = Rate{10'000'000'000};
        run({.config = config,
             .messages = {message(5'000'000)},
             .expected = {.received_within = time_to_send(Bytes{5'000'000}, port().rate) * 2}});
    }
}

TEST_CASE("endpoint pair: loss is repaired, and a lost tail costs no long timeout") {
    run({.links = {.there = lossy_link(0.05), .back = lossy_link(0.05)},
         .messages = std::vector<SendPlan>(100, message(20'000)),
         .one_at_a_time = true,
         .expected = {.also = [](Net& net) {
             // A lost tail costs a probe timeout of a few hundred microseconds, not TCP's 200 ms.
             std::vector<std::int64_t> times;
             for (const ReceiveRecord& receive : net.world.receives()) times.push_back(took(receive).value);
             std::sort(times.begin(), times.end());
             CHECK(times[50] < 400'000);
             CHECK(times[98] < 5'000'000);
             CHECK(net.world.counters(0).repair_packets_sent > 50);
         }}});
}

TEST_CASE("endpoint pair: many packets late at once do not blind the sender to later losses") {
    // Half of the paths are late, for one message. Each of their packets counts as lost and is none.
    EndpointConfig config = plain_config();
    config.run_packets = 8;
    Net net(config);
    net.connect_all();
    LinkSettings late = plain_link();
    for (std::uint16_t path = 0; path < 64; path += 2)
        late.paths.push_back({.path = path, .delay = microseconds(300)});
    net.network().set_between(0, 1, late);
    net.exchange(message(180'000));
    net.world.run_until(net.world.now() + milliseconds(1));
    CHECK(net.world.counters(0).spurious_losses > 16);
    // From now on losses are real, and the packets that overtake them tell so within a round trip.
    net.network().set_between(0, 1, lossy_link(0.05));
    std::vector<std::int64_t> times;
    for (std::size_t i = 1; i <= 100; ++i) {
        net.exchange(message(60'000));
        net.finish();
        times.push_back(took(net.receive(i)).value);
    }
    std::sort(times.begin(), times.end());
    CHECK(times[50] < 150'000);  // 224 us where each of the packets widened the tolerances
    net.check();
}

TEST_CASE("endpoint pair: a peer that was late before is not sent everything twice when it is late again") {
    Net net;
    net.connect_all();
    std::uint64_t repairs[3] = {};
    for (std::uint64_t& each : repairs) {
        const std::uint64_t before = net.world.counters(0).repair_packets_sent;
        LinkSettings late = plain_link();
        late.delay = milliseconds(4);
        net.network().set_between(0, 1, late);
        net.exchange(message(60'000));
        net.finish();
        each = net.world.counters(0).repair_packets_sent - before;
        net.network().set_between(0, 1, plain_link());
        // An average has forgotten it after these.
        for (int i = 0; i < 100; ++i) {
            net.exchange(message(60'000));
            net.finish();
        }
    }
    CHECK(repairs[0] > 20);
    CHECK(repairs[1] < 5);
    CHECK(repairs[2] < 5);
    net.check();
}

TEST_CASE("endpoint pair: a trimmed packet is repaired at once, not after a probe timeout") {
    Net net;
    net.connect_all();
    LinkSettings trimming = plain_link();
    trimming.trim_ratio = 1.0;
    net.network().set_between(0, 1, trimming);
    int trimmed = 0;
    net.network().observe([&](const PacketRecord& record) {
        if (record.fate == Fate::trimmed && ++trimmed == 2) net.network().set_between(0, 1, plain_link());
    });
    net.exchange(bounded_message(4 * 1408, 0.3, 0.0));  // the budget covers one block
    net.finish();
    CHECK(net.network().count(Fate::trimmed) == 2);
    CHECK(net.send(0).outcome.abandoned_blocks <= 1);
    CHECK(took(net.receive(0)) < microseconds(150));  // three times the 20 us of the link, and the ports
    net.check();
}

TEST_CASE("endpoint pair: a bounded message does not wait for what it may lose") {
    run({.links = {.there = lossy_link(0.02)},
         .messages = {bounded_message(2'000'000, 0.1, 0.0)},
         .expected = {.abandons = true, .abandoned_ratio_below = 0.05, .also = [](Net& net) {
                          // The packet that ends the pass is critical, and may leave twice.
                          CHECK(net.send(0).outcome.retransmitted_bytes <= net.send(0).outcome.block_bytes);
                      }}});
}

TEST_CASE("endpoint pair: what exceeds the budget is repaired, most important first") {
    Net net;
    net.connect_all();
    net.network().set_between(0, 1, lossy_link(0.4));
    // The network heals as soon as the first pass is over, so that each repair succeeds.
    net.world.watch_packets([&](std::uint32_t host, const wire::Header& header) {
        if (host == 0 && header.type == wire::Type::data && (header.flags & wire::flag::first_pass_over) != 0)
            net.network().set_between(0, 1, plain_link());
    });
    std::vector<std::uint32_t> repaired;
    net.network().observe([&](const PacketRecord& record) {
        wire::Datagram datagram;
        if (record.fate != Fate::sent || wire::parse(record.bytes, 0, datagram) != wire::ParseError::none) return;
        if ((datagram.header.flags & wire::flag::repair) != 0) repaired.push_back(datagram.header.block_index);
    });
    net.exchange(bounded_message(500'000, 0.2, 0.0));
    net.finish();
    const SendRecord& send = net.send(0);
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
    run({.links = {.there = lossy_link(0.3), .back = lossy_link(0.3)},
         .messages = {bounded_message(400'000, 0.1, 0.5)},
         .expected = {.abandons = true}});
}

TEST_CASE("endpoint pair: a deadline ends a message with what is there") {
    run({.links_later = {.uplink = port(100'000'000)},  // 1 MB would take 80 ms
         .messages = {deadline_message(1'000'000, milliseconds(10), 0.0)},
         .expected = {.received_after = milliseconds(10),
                      .received_within = milliseconds(12),
                      .abandoned_ratio_above = 0.8}});
}

TEST_CASE("endpoint pair: a deadline waits for critical blocks") {
    run({.links_later = {.uplink = port(100'000'000)},
         .messages = {deadline_message(200'000, microseconds(100), 0.5)},
         .expected = {.abandons = true}});
}

TEST_CASE("endpoint pair: the handshake finds what the path carries, in each direction") {
    EndpointConfig config = plain_config();
    config.max_datagram_bytes = 8972;
    // MTUs of 9000, 1500, 1420, 1200 and 576, and one that no link has: less IP and UDP.
    for (const std::uint64_t there : {8972, 1472, 1392, 1172, 548, 1111}) {
        for (const std::uint64_t back : {8972, 1172}) {
            CAPTURE(there);
            CAPTURE(back);
            const auto narrow = [](std::uint64_t bytes) {
                return LinkSettings{.max_datagram = Bytes{bytes}, .delay = microseconds(20)};
            };
            run({.config = config,
                 .links = {.there = narrow(there), .back = narrow(back)},
                 .messages = {message(100'000)},
                 .expected = {.also = [&](Net& net) {
                     const auto found = net.world.endpoint(0).block_bytes(*net.world.endpoint(0).find_peer(1));
                     CHECK(net.send(0).outcome.block_bytes == found);
                     CHECK(found + wire::header_bytes <= there);
                     CHECK(found + wire::header_bytes + 16 > there * 95 / 100);
                 }}});
        }
    }
}

TEST_CASE("endpoint pair: a short message does not wait for a long one of its class") {
    Net net;
    net.connect_all();
    net.network().set_uplink(0, port(1'000'000'000));
    net.exchange(message(50'000'000));  // 400 ms
    net.run_for(milliseconds(100));
    for (int i = 0; i < 20; ++i) {
        net.exchange(message(8'000));
        net.run_for(milliseconds(5));
    }
    net.finish();
    for (std::size_t i = 1; i < net.world.sends().size(); ++i) {
        CAPTURE(i);
        // What the window lets stand in the queue, once; and what it takes alone.
        CHECK(took(net.receive(i)) < plain_config().target_delay * 3);
    }
    net.check();
}

TEST_CASE("endpoint pair: short messages do not stop a long one of their class") {
    Net net;
    net.connect_all();
    net.network().set_uplink(0, port(100'000'000));
    net.exchange(message(400'000));                               // 32 ms alone
    for (int i = 0; i < 200; ++i) net.exchange(message(16'000));  // 256 ms
    net.finish();
    CHECK(net.send(0).over < net.send(200).over);
    net.check();
}

TEST_CASE("endpoint pair: the packet that ends the first pass is critical, so that a budget is used in time") {
    Net net;
    net.connect_all();
    std::uint32_t ends = 0;
    net.world.watch_packets([&](std::uint32_t host, const wire::Header& header) {
        if (host != 0 || header.type != wire::Type::data) return;
        if ((header.flags & wire::flag::first_pass_over) == 0) return;
        ++ends;
        CHECK((header.flags & wire::flag::critical) != 0);
        CHECK(header.importance == wire::importance_critical);
    });
    for (const std::uint32_t bytes : {1'000u, 3'000u, 50'000u, 400'000u})
        for (const double critical_ratio : {0.0, 0.5, 1.0})
            net.exchange(bounded_message(bytes, 0.3, critical_ratio));
    net.finish();
    CHECK(ends >= 12);
    net.check();
}

TEST_CASE(
    "endpoint pair: what a queue drops beyond the budget is repaired once the pass is over, not after a timeout") {
    Scenario scenario;
    scenario.config.min_rto = milliseconds(10);
    scenario.links_later.uplink = port();
    scenario.links_later.uplink->droppable_above = Bytes{20'000};
    scenario.config.run_packets = scenario.config.min_run_packets = 16;
    scenario.config.paths = 8;
    // A burst of 28 blocks, of which two may be lost; the queue drops about ten. Nothing is sent later that could tell.
    scenario.messages.assign(20, bounded_message(40'000, 0.1, 0.3));
    scenario.one_at_a_time = true;
    scenario.expected.received_within = milliseconds(1);
    scenario.expected.also = [](Net& net) { CHECK(net.world.endpoint(0).counters().lost_packets >= 100); };
    run(scenario);
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
    for (std::uint64_t tag = 1; tag <= 5; ++tag)
        net.world.send({.from = 0, .to = 1, .tag = tag, .message_bytes = 20'000});
    net.run_for(milliseconds(50));
    CHECK(bound_reached);
    for (std::size_t i = 5; i-- > 0;) net.post_receive(net.send(i).plan);  // last one first
    net.finish();
    for (const SendRecord& send : net.world.sends()) CHECK(send.phase == Phase::finished);
    net.check();
}

TEST_CASE("endpoint pair: waiting for a receive costs few packets") {
    EndpointConfig config = plain_config();
    config.max_unexpected = Bytes{0};
    Net net(config);
    net.connect_all();
    net.world.send({.from = 0, .to = 1, .tag = 1, .message_bytes = 20'000});
    net.run_for(seconds(1));
    const std::uint64_t before = net.network().count(Fate::sent);
    net.run_for(seconds(10));
    // Two packets per longest timeout would be 1000; a storm would be millions.
    CHECK(net.network().count(Fate::sent) - before < 1'500);
    net.post_receive(net.send(0).plan);
    net.finish();
    net.check();
}

TEST_CASE("endpoint pair: what a receiver does not keep is no loss of the network") {
    EndpointConfig config = plain_config();
    config.max_unexpected = Bytes{0};
    Net net(config);
    net.connect_all();
    const auto window = [&] {
        return net.world.endpoint(0).peer_statistics(*net.world.endpoint(0).find_peer(1)).window;
    };
    net.exchange(message(1'000'000));
    net.finish();
    const Bytes before = window();
    for (std::uint64_t tag = 2; tag <= 10; ++tag) {
        net.world.send({.from = 0, .to = 1, .tag = tag, .message_bytes = 200'000});
        net.run_for(milliseconds(5));
        net.post_receive(net.send(tag - 1).plan);
        net.finish();
    }
    CHECK(net.world.counters(0).lost_packets == 0);
    CHECK(net.world.counters(1).held_packets > 0);
    CHECK(window().value >= before.value);
    net.check();
}

TEST_CASE("endpoint pair: a sender on hold asks, so that a lost frame to proceed costs little") {
    EndpointConfig config = plain_config();
    config.max_unexpected = Bytes{0};
    Net net(config);
    net.connect_all();
    net.world.send({.from = 0, .to = 1, .tag = 1, .message_bytes = 20'000});
    net.run_for(milliseconds(50));
    LinkSettings dead = plain_link();
    dead.outages = {{net.world.now(), net.world.now() + milliseconds(1)}};
    net.network().set_between(1, 0, dead);
    net.post_receive(net.send(0).plan);
    net.finish();
    CHECK(net.network().count(Fate::lost_outage) > 0);
    CHECK(net.send(0).phase == Phase::finished);
    CHECK(took(net.receive(0)) < milliseconds(50));  // two of the longest timeouts, and room
    net.check();
}

TEST_CASE("endpoint pair: a receive that is too small refuses, on both sides, and leaves its buffer alone") {
    run({.messages = {message(10'001)},
         .capacity_bytes = 10'000,
         .expected = {.send_error = CommandError::refused, .receive_error = CommandError::receive_too_small}});
}

TEST_CASE("endpoint pair: either side can cancel") {
    Net net;
    net.connect_all();
    net.network().set_uplink(0, port(100'000'000));
    for (const bool sender : {true, false}) {
        CAPTURE(sender);
        const SendPlan plan{.from = 0, .to = 1, .tag = 1, .message_bytes = 3'000'000};
        const std::size_t receive = net.post_receive(plan);
        const std::size_t send = net.world.send(plan);
        net.run_for(milliseconds(20));
        sender ? net.world.cancel_send(send) : net.world.cancel_receive(receive);
        net.finish();
        CHECK(net.send(send).error == (sender ? CommandError::cancelled : CommandError::peer_cancelled));
        CHECK(net.receive(receive).error == (sender ? CommandError::peer_cancelled : CommandError::cancelled));
    }
    net.check();
}

TEST_CASE("endpoint pair: higher classes leave first") {
    Net net;
    LinkSettings by_class = port();
    by_class.strict_priority = true;
    net.network().set_uplink(0, by_class);
    net.connect_all();
    const SendPlan bulk{.from = 0, .to = 1, .tag = 1, .message_bytes = 5'000'000, .traffic_class = 0};
    const SendPlan urgent{.from = 0, .to = 1, .tag = 2, .message_bytes = 20'000, .traffic_class = 6};
    net.post_receive(bulk);
    net.post_receive(urgent);
    net.world.send(bulk);
    net.run_for(milliseconds(1));
    net.world.send(urgent);
    net.finish();
    CHECK(took(net.send(1)) < microseconds(500));
    net.check();
}

TEST_CASE("endpoint pair: a dead path is left, and used again when it is back") {
    EndpointConfig config = plain_config();
    config.paths = 4;
    config.run_packets = 4;
    Net net(config);
    net.connect_all();
    LinkSettings broken = plain_link();
    broken.paths = {{2, 1.0, {0}}};
    net.network().set_between(0, 1, broken);
    bool down = false, up = false;
    net.world.on_event = [&](std::uint32_t host, const Event& event) {
        if (host == 0 && event.kind == EventKind::path_down && event.value == 2) down = true;
        if (host == 0 && event.kind == EventKind::path_up && event.value == 2) up = true;
    };
    const auto transfer = [&](std::uint32_t bytes) {
        net.exchange(message(bytes));
        net.finish();
        return took(net.world.sends().back());
    };
    transfer(3'000'000);
    CHECK(down);
    const std::uint64_t lost = net.network().count(Fate::lost_path);
    CHECK(transfer(3'000'000) < milliseconds(8));
    CHECK(net.network().count(Fate::lost_path) - lost < 50);
    net.network().set_between(0, 1, plain_link());
    for (int i = 3; i < 300 && !up; ++i) {
        transfer(100'000);
        net.run_for(milliseconds(200));
    }
    CHECK(up);
    net.check();
}

TEST_CASE("endpoint pair: an incast does not overflow the receiver's socket") {
    EndpointConfig config = plain_config();
    config.receive_buffer = Bytes{200'000};
    Net net(config, 4);
    // All hosts reach the receiver faster than it reads: its inbox is what fills.
    for (std::uint32_t i = 0; i < 4; ++i) net.network().set_downlink(i, {});
    net.network().set_inbox(0, Bytes{220'000});
    net.connect_all();
    for (std::uint32_t from = 1; from < 4; ++from) net.exchange(message(2'000'000, from, 0));
    net.finish();
    CHECK(net.network().count(Fate::lost_inbox) == 0);
    net.check();
}

TEST_CASE("endpoint pair: marks keep a queue short") {
    Net net(plain_config(), 3);
    LinkSettings marking = port();
    marking.ecn_mark_above = Bytes{50'000};
    marking.queue = Bytes{2'000'000};
    net.network().set_downlink(0, marking);
    net.connect_all();
    for (std::uint32_t from = 1; from < 3; ++from) net.exchange(message(10'000'000, from, 0));
    net.finish();
    CHECK(net.network().count(Fate::marked) > 0);
    CHECK(net.network().count(Fate::lost_queue) == 0);
    CHECK(net.world.counters(0).ce_packets_received == net.network().count(Fate::marked));
    // 20 MB over one link, shared fairly enough that neither takes much longer.
    for (const ReceiveRecord& receive : net.world.receives()) CHECK(took(receive) < milliseconds(25));
    net.check();
}

TEST_CASE("endpoint pair: a peer that restarts fails what was under way, and is there again") {
    Net net(keyed_config());
    net.connect_all();
    net.world.allowed.restarts = true;
    net.network().set_uplink(0, port(10'000'000));
    net.exchange(message(100'000));
    net.run_for(milliseconds(20));
    net.world.restart(1);
    REQUIRE(net.world.connect(1, 0) == CommandError::none);
    net.finish();
    CHECK(net.send(0).error == CommandError::peer_restarted);
    CHECK(took(net.send(0)) < milliseconds(100));
    net.exchange(net.send(0).plan);
    net.finish();
    CHECK(net.send(1).phase == Phase::finished);
    net.check();
}

TEST_CASE(
    "endpoint pair: by default a peer may be silent for a quarter of a minute, and goes on within a second") {
    for (const bool sends : {true, false}) {
        Net net(EndpointConfig{});
        net.connect_all();
        net.world.allowed.timeouts = true;
        net.world.send({.from = 0, .to = 1, .tag = 1, .message_bytes = 1'000'000});
        net.world.receive({.at = 1, .from = 0, .tag = 1, .capacity_bytes = 1'000'000});
        net.world.run_until(net.world.now() + microseconds(50));
        LinkSettings silent = plain_link();
        const Time until = net.world.now() + seconds(15);
        silent.outages = {{net.world.now(), until}};
        net.network().set_between(sends ? 1 : 0, sends ? 0 : 1, silent);
        net.world.receive({.at = 0, .from = 1, .tag = 2, .capacity_bytes = 1000});  // who only waits asks as well
        net.world.run_until(until);
        net.world.send({.from = 1, .to = 0, .tag = 2, .message_bytes = 1000});
        net.finish();
        CHECK(net.send(0).phase == Phase::finished);
        CHECK(net.send(1).phase == Phase::finished);
        CHECK(net.world.now() < until + seconds(1));
        net.check();
    }
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
    net.finish();
    CHECK(net.send(0).error == CommandError::peer_timeout);
    CHECK(took(net.send(0)) >= milliseconds(990));
    CHECK(took(net.send(0)) <= milliseconds(1200));
    CHECK(down_after >= seconds(1));
    net.check(seconds(30));
}

TEST_CASE("endpoint pair: goodbye fails what is under way at once") {
    Net net;
    net.connect_all();
    net.world.allowed.closes = true;
    net.network().set_uplink(1, port(100'000'000));
    net.exchange(message(3'000'000, 1, 0));
    net.world.send({.from = 0, .to = 1, .tag = 2, .message_bytes = 0});
    net.world.receive({.at = 0, .from = 1, .tag = 3, .capacity_bytes = 10});
    net.run_for(milliseconds(20));
    net.world.close(1);
    net.finish(seconds(1));
    CHECK(net.send(0).error == CommandError::closed);
    for (const ReceiveRecord& receive : net.world.receives()) CHECK(receive.error == CommandError::peer_closed);
    net.check();
}

TEST_CASE("endpoint pair: another key, or none, is nobody") {
    EndpointConfig other = keyed_config();
    other.job_key->fill(0x43);
    World world(1);
    for (const EndpointConfig& config : {keyed_config(), other, plain_config()}) world.add_host(config);
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

TEST_CASE("endpoint pair: a session has a cipher that both ends allow, or does not start") {
    const bool aegis = offered_ciphers(CipherChoice::aegis_128x2, CryptoLibrary::fastest) != CipherCosts{};
    const auto with = [](CipherChoice cipher, bool encrypt) {
        EndpointConfig config = keyed_config(encrypt);
        config.crypto_library = CryptoLibrary::fastest;
        config.cipher = cipher;
        return config;
    };
    for (const bool encrypt : {false, true}) {
        CAPTURE(encrypt);
        if (aegis) run({.config = with(CipherChoice::aegis_128x2, encrypt), .messages = {message(100'000)}});
        run({.config = with(CipherChoice::aes_128_gcm, encrypt), .messages = {message(100'000)}});
    }
    // Of ends with different settings.
    for (const CipherChoice other : {CipherChoice::any, CipherChoice::aegis_128x2}) {
        if (other == CipherChoice::aegis_128x2 && !aegis) {
            MESSAGE("skipped: libaegis is not on this machine: ends without a common cipher");
            continue;
        }
        const bool common = other == CipherChoice::any;
        World world(1);
        world.add_host(with(CipherChoice::aes_128_gcm, false));
        world.add_host(with(other, false));
        world.connect(0, 1);
        world.connect(1, 0);
        world.allowed.timeouts = !common;
        world.run_until(Time{0} + milliseconds(500));
        CHECK(world.established(0, 1) == common);
        CHECK(world.established(1, 0) == common);
        CHECK((world.counters(0).no_common_cipher == 0) == common);
        CHECK((world.counters(1).no_common_cipher == 0) == common);
        CHECK(world.failure() == "");
    }
}

TEST_CASE("endpoint pair: endpoints of one incarnation exchange messages") {
    EndpointConfig config = keyed_config();
    config.incarnation = 0xfedcba9876543210;
    run({.config = config, .messages = {message(4096)}});
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
    const LinkSettings damaging{
        .delay = microseconds(20), .duplicate_ratio = 0.1, .corrupt_ratio = 0.1, .truncate_ratio = 0.05};
    for (const bool encrypt : {false, true}) {
        CAPTURE(encrypt);
        run({.config = keyed_config(encrypt),
             .links = {.there = damaging, .back = damaging},
             .messages = {message(500'000)},
             .expected = {.also = [](Net& net) {
                 CHECK(net.world.counters(1).bad_tag > 0);
                 CHECK(net.world.counters(1).replayed > 0);
             }}});
    }
}

TEST_CASE("endpoint pair: keys can change while messages are under way") {
    Net net(keyed_config());
    net.connect_all();
    net.exchange(message(2'000'000));
    for (int i = 0; i < 3; ++i) {
        net.run_for(microseconds(200));
        net.world.advance_key_epoch(i % 2 == 0 ? 0 : 1);
    }
    net.finish();
    CHECK(net.send(0).phase == Phase::finished);
    CHECK(net.world.counters(1).bad_tag == 0);
    CHECK(net.world.counters(0).bad_tag == 0);
    net.check();
}

TEST_CASE("endpoint pair: messages of one tag are received in the order sent") {
    Scenario scenario{
        .links = {.there =
                      LinkSettings{.delay = microseconds(20), .jitter = microseconds(20), .loss_ratio = 0.05}},
        .capacity_bytes = 10'000,
        .expected = {.also = [](Net& net) {
            for (std::size_t i = 0; i < 20; ++i) CHECK(net.receive(i).outcome.message_bytes == 5'000 + i);
        }}};
    for (std::uint32_t i = 0; i < 20; ++i)
        scenario.messages.push_back({.from = 0, .to = 1, .tag = 9, .message_bytes = 5'000 + i});
    run(scenario);
}

TEST_CASE("endpoint pair: virtual payload is delivered like a real one") {
    SendPlan plan = bounded_message(500'000, 0.05, 0.2);
    plan.is_virtual = true;
    run({.links = {.there = lossy_link(0.02)}, .messages = {plan}});
}

TEST_CASE("endpoint pair: a clock whose low 32 bits wrap makes no difference") {
    const auto run = [](Time origin) {
        World world(5, origin);
        for (int i = 0; i < 2; ++i) world.add_host(plain_config());
        LinkSettings link = lossy_link(0.02);
        link.rate = Rate{1'000'000'000};
        set_links(world.network(), {.there = link, .back = link});
        world.receive({.at = 1, .from = 0, .tag = 1, .capacity_bytes = 1'000'000});
        SendPlan plan = bounded_message(1'000'000, 0.05, 0.1);
        plan.tag = 1;
        world.send(plan);
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
        std::uint64_t result = 0;
        run({.config = keyed_config(),
             .seed = seed,
             .links = {.there = lossy_link(0.05)},
             .messages = {message(200'000)},
             .expected = {.also = [&](Net& net) { result = net.world.trace_hash(); }}});
        return result;
    };
    CHECK(hash(1) == hash(1));
    CHECK(hash(1) != hash(2));
}

// 2 MiB of receive buffer would be 56 Mbit/s. The first packets once counted as lost before any answer could come.
TEST_CASE("endpoint pair: senders that take no turns share a receiver that gives them") {
    constexpr std::uint32_t senders = 4;
    constexpr std::uint32_t bytes = 8 << 20;
    EndpointConfig config = plain_config();
    config.line_rate = port().rate;
    World world(1);
    for (std::uint32_t host = 0; host <= senders; ++host) {
        config.congestion = congestion_algorithm(host == 0 ? "auto" : "window");
        world.add_host(config);
        world.network().set_uplink(host, port());
        world.network().set_downlink(host, port());
    }
    for (std::uint32_t host = 1; host <= senders; ++host) {
        world.network().set_between(host, 0, plain_link());
        world.network().set_between(0, host, plain_link());
        world.receive({.at = 0, .from = host, .tag = host, .capacity_bytes = bytes});
        world.send({.from = host, .to = 0, .tag = host, .message_bytes = bytes});
    }
    const auto over = [&] { return world.open_sends() + world.open_receives() == 0; };
    const Duration least = time_to_send(Bytes{std::uint64_t{bytes} * senders}, port().rate);
    CHECK(world.run(Time{0} + least * 5 / 4, over));
    for (const ReceiveRecord& receive : world.receives()) CHECK(took(receive).value > least.value / 2);
}

// Four senders to one receiver. In turns the messages end one after the other, the last no later than by windows.
TEST_CASE("endpoint pair: under an incast auto gives turns, and messages end sooner than by windows") {
    constexpr std::uint32_t message_bytes = 4'000'000;
    constexpr std::uint32_t senders = 4;
    const auto ends = [&](const char* algorithm) {
        World world(1);
        LinkSettings port;
        port.rate = Rate{10'000'000'000};
        port.queue = Bytes{500'000};
        port.ecn_mark_above = Bytes{100'000};
        for (std::uint32_t host = 0; host <= senders; ++host) {
            EndpointConfig config;
            config.congestion = congestion_algorithm(algorithm);
            config.line_rate = port.rate;
            config.target_delay = microseconds(30);
            world.add_host(config);
            world.network().set_uplink(host, port);
            world.network().set_downlink(host, port);
        }
        LinkSettings way;
        way.delay = microseconds(10);
        for (std::uint32_t host = 1; host <= senders; ++host) {
            world.network().set_between(host, 0, way);
            world.network().set_between(0, host, way);
            world.receive({.at = 0, .from = host, .tag = 1, .capacity_bytes = message_bytes, .is_virtual = true});
            world.send({.from = host, .to = 0, .tag = 1, .message_bytes = message_bytes, .is_virtual = true});
        }
        std::vector<std::int64_t> found;
        for (std::uint32_t left = senders; left-- > 0;) {
            REQUIRE(world.run(world.now() + seconds(1), [&] { return world.open_sends() <= left; }));
            found.push_back(world.now().value);
        }
        CHECK(world.failure() == "");
        return found;
    };
    const std::vector<std::int64_t> window = ends("window");
    const std::vector<std::int64_t> turns = ends("auto");
    const auto sum = [](const std::vector<std::int64_t>& times) {
        return std::accumulate(times.begin(), times.end(), std::int64_t{0});
    };
    CHECK(sum(turns) < sum(window) * 8 / 10);
    CHECK(turns.back() < window.back() * 105 / 100);
}

TEST_CASE("endpoint pair: a peer that listens seconds later is not taken for one far away") {
    World world(1);
    for (const std::uint32_t host : {0u, 1u}) {
        world.add_host(EndpointConfig{});
        world.network().set_uplink(host, port());
        world.network().set_downlink(host, port());
        world.network().set_between(host, 1 - host, lossy_link(1.0));
    }
    REQUIRE(world.connect(0, 1) == CommandError::none);
    world.run_until(Time{0} + seconds(3));
    world.network().set_between(0, 1, plain_link());
    world.network().set_between(1, 0, plain_link());
    REQUIRE(world.run(Time{0} + seconds(5), [&] { return world.established(0, 1); }));
    CHECK(world.endpoint(0).peer_statistics(*world.endpoint(0).find_peer(1)).rtt <= milliseconds(20));
}

TEST_CASE("endpoint pair: between continents more is in flight than the peer's host could buffer") {
    Net net{EndpointConfig{}};
    for (const std::uint32_t host : {0u, 1u}) {
        net.network().set_uplink(host, port(1'000'000'000));
        net.network().set_downlink(host, port(1'000'000'000));
        net.network().set_between(host, 1 - host, {.delay = milliseconds(150)});
    }
    net.connect_all();
    for (int i = 0; i < 2; ++i) {
        net.exchange(message(16 << 20));
        net.finish(seconds(20));
    }
    CHECK(took(net.receive(0)) < seconds(3));  // 9 s with windows of the buffer's size
    CHECK(took(net.receive(1)) < seconds(1));  // 3 s
    CHECK(net.world.counters(0).repair_packets_sent == 0);
    net.check();
}

TEST_CASE("endpoint pair: no more is in flight than a cache holds, or than leaves in two milliseconds") {
    // Answers are late, so the window grows although nothing queues; the link and the peer's buffer would take
    // 8 MB.
    EndpointConfig config = plain_config();
    config.receive_buffer = Bytes{64 << 20};
    Net net(config);
    for (const std::uint32_t host : {0u, 1u}) {
        net.network().set_uplink(host, port(10'000'000'000));
        net.network().set_downlink(host, port(10'000'000'000));
    }
    net.connect_all();
    net.exchange(message(1 << 20));  // learns the round trip
    net.finish();
    LinkSettings late = plain_link();
    late.delay = milliseconds(6);
    net.network().set_between(1, 0, late);
    net.exchange(message(64 << 20));
    Bytes most{0};
    while (net.world.open_receives() > 0) {
        net.run_for(microseconds(500));
        const Endpoint& sender = net.world.endpoint(0);
        most = std::max(most, sender.peer_statistics(*sender.find_peer(1)).in_flight);
    }
    CHECK(most.value < 2'800'000);  // 10 Gbit/s for 2.1 ms; 4.4 MB without the bound
    net.check();
}

}  // namespace dlcp::test

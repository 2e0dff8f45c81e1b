// The fake network itself: its arithmetic, its faults and its memory, since every other test trusts it.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/wire.hpp"
#include "support/native/virtual_driver.hpp"
#include "support/native/virtual_network.hpp"

namespace dlcp {
namespace {

constexpr std::uint8_t ect = 2;  // ECT(0)

// A data packet of a one-block message; `byte` fills its payload.
struct TestPacket {
    explicit TestPacket(std::uint16_t payload_bytes, bool critical = true, std::uint8_t byte = 0)
        : body(payload_bytes, byte) {
        wire::Header header;
        header.flags = critical ? wire::flag::critical : 0;
        header.importance = critical ? 255 : 7;
        header.message_id = 1;
        header.message_bytes = payload_bytes;
        header.block_bytes = payload_bytes;
        header.payload_bytes = payload_bytes;
        header.critical_blocks = critical ? 1 : 0;
        wire::write(header, head.data());
        packet.head = head.data();
        packet.head_bytes = wire::header_bytes;
        packet.body = body.data();
        packet.body_bytes = payload_bytes;
        packet.tos = critical ? ect : 0;
    }
    TestPacket(const TestPacket&) = delete;
    std::array<std::uint8_t, 128> head{};
    std::vector<std::uint8_t> body;
    dlcp_packet packet{};
};

struct Pair {
    explicit Pair(std::uint64_t seed = 1) : network(seed) {
        network.add_host();
        network.add_host();
    }
    void send(TestPacket& test) {
        const dlcp_address to = VirtualNetwork::address(1);
        test.packet.address = &to;
        network.send(0, test.packet);
    }
    // Times and first payload bytes of what arrives at host 1 until nothing is under way.
    std::vector<std::pair<std::int64_t, int>> arrivals() {
        std::vector<std::pair<std::int64_t, int>> seen;
        for (;;) {
            dlcp_packet packets[16];
            while (const std::size_t count = network.receive(1, packets)) {
                for (std::size_t i = 0; i < count; ++i) {
                    const bool payload = packets[i].head_bytes > wire::header_bytes;
                    seen.emplace_back(network.now().value, payload ? packets[i].head[wire::header_bytes] : -1);
                }
                network.release({packets, count});
            }
            if (network.next_event() == time_never) return seen;
            network.advance(network.next_event());
        }
    }
    VirtualNetwork network;
};

using Seen = std::vector<std::pair<std::int64_t, int>>;

}  // namespace

TEST_CASE("virtual network: without links a packet arrives at once, as it was when sent") {
    Pair pair;
    TestPacket test(100, true, 7);
    test.head[64] = 0xab;  // a tag behind the head
    test.packet.tail_bytes = 16;
    pair.send(test);
    test.body.assign(100, 9);  // the sender's memory is its own again
    test.head.fill(0);

    dlcp_packet out[4];
    REQUIRE(pair.network.receive(1, out) == 1);
    CHECK(out[0].head_bytes == 64 + 100 + 16);
    CHECK(out[0].head[64] == 7);
    CHECK(out[0].head[163] == 7);
    CHECK(out[0].head[164] == 0xab);
    CHECK(VirtualNetwork::host_of(*out[0].address) == 0);
    pair.network.release({out, 1});
    CHECK(!pair.network.readable(1));
}

TEST_CASE("virtual network: virtual payload takes time on the link but no memory") {
    Pair pair;
    LinkSettings link;
    link.rate = Rate{8'000'000'000};  // a byte per nanosecond
    pair.network.set_uplink(0, link);
    TestPacket test(1000);
    test.packet.body = nullptr;
    test.packet.flags = DLCP_PACKET_VIRTUAL;
    pair.send(test);
    CHECK(pair.network.next_event() == Time{64 + 1000 + VirtualNetwork::lower_layer_bytes});
    pair.network.advance(pair.network.next_event());
    dlcp_packet out[1];
    REQUIRE(pair.network.receive(1, out) == 1);
    CHECK(out[0].head_bytes == 64);
    CHECK(out[0].body_bytes == 1000);
    CHECK(out[0].flags == DLCP_PACKET_VIRTUAL);
    wire::Datagram datagram;
    CHECK(wire::parse({out[0].head, out[0].head_bytes}, out[0].body_bytes, datagram) == wire::ParseError::none);
}

TEST_CASE("virtual network: a link sends one packet after the other, then delays each") {
    Pair pair;
    LinkSettings link;
    link.rate = Rate{8'000'000'000};
    link.delay = microseconds(10);
    pair.network.set_between(0, 1, link);
    for (std::uint8_t i = 0; i < 3; ++i) {
        TestPacket test(870, true, i);  // 1000 bytes with everything
        pair.send(test);
    }
    CHECK(pair.arrivals() == Seen{{11'000, 0}, {12'000, 1}, {13'000, 2}});
}

TEST_CASE("virtual network: uplink, way and downlink are crossed in turn, and a downlink is shared") {
    VirtualNetwork network(1);
    for (int i = 0; i < 3; ++i) network.add_host();
    LinkSettings slow;
    slow.rate = Rate{8'000'000'000};
    network.set_uplink(0, slow);
    network.set_uplink(1, slow);
    network.set_downlink(2, slow);
    const dlcp_address to = VirtualNetwork::address(2);
    for (std::uint32_t from = 0; from < 2; ++from) {
        TestPacket test(870);
        test.packet.address = &to;
        network.send(from, test.packet);
    }
    network.advance(Time{2'000});
    dlcp_packet out[4];
    std::size_t count = network.receive(2, out);
    REQUIRE(count == 1);
    network.release({out, count});
    network.advance(Time{3'000});
    count = network.receive(2, out);
    REQUIRE(count == 1);
    network.release({out, count});
}

TEST_CASE("virtual network: a full queue drops the last to come") {
    Pair pair;
    LinkSettings link;
    link.rate = Rate{8'000'000'000};
    link.queue = Bytes{2'000};
    pair.network.set_between(0, 1, link);
    for (std::uint8_t i = 0; i < 5; ++i) {
        TestPacket test(870, true, i);
        pair.send(test);
    }
    // One is being sent, two wait.
    CHECK(pair.arrivals() == Seen{{1'000, 0}, {2'000, 1}, {3'000, 2}});
    CHECK(pair.network.count(Fate::lost_queue) == 2);
}

TEST_CASE("virtual network: droppable packets go first, and are trimmed if the link does that") {
    for (const bool trim : {false, true}) {
        CAPTURE(trim);
        Pair pair;
        LinkSettings link;
        link.rate = Rate{8'000'000'000};
        link.queue = Bytes{10'000};
        link.droppable_above = Bytes{1'500};
        link.trim = trim;
        pair.network.set_between(0, 1, link);
        for (std::uint8_t i = 0; i < 4; ++i) {
            TestPacket test(870, i % 2 == 0, i);  // 0 and 2 critical
            pair.send(test);
        }
        const Seen seen = pair.arrivals();
        if (trim) {
            CHECK(seen == Seen{{1'000, 0}, {2'000, 1}, {3'000, 2}, {3'130, -1}});
            CHECK(pair.network.count(Fate::trimmed) == 1);
        } else {
            CHECK(seen == Seen{{1'000, 0}, {2'000, 1}, {3'000, 2}});
            CHECK(pair.network.count(Fate::lost_queue) == 1);
        }
    }
}

TEST_CASE("virtual network: a trimmed packet keeps its header, says so and parses") {
    Pair pair;
    LinkSettings link;
    link.trim_ratio = 1.0;
    pair.network.set_between(0, 1, link);
    TestPacket droppable(500, false);
    TestPacket critical(500, true);
    pair.send(droppable);
    pair.send(critical);
    pair.network.advance(Time{0});
    dlcp_packet out[4];
    REQUIRE(pair.network.receive(1, out) == 2);
    wire::Datagram datagram;
    REQUIRE(wire::parse({out[0].head, out[0].head_bytes}, 0, datagram) == wire::ParseError::none);
    CHECK(out[0].head_bytes == 64);
    CHECK((datagram.header.flags & wire::flag::trimmed) != 0);
    CHECK(datagram.header.payload_bytes == 500);
    CHECK(out[1].head_bytes == 564);
    pair.network.release({out, 2});
}

TEST_CASE("virtual network: only ECN-capable packets are marked, and only in a queue") {
    Pair pair;
    LinkSettings link;
    link.rate = Rate{8'000'000'000};
    link.ecn_mark_above = Bytes{500};
    pair.network.set_between(0, 1, link);
    for (int i = 0; i < 4; ++i) {
        TestPacket test(870, i != 3);
        pair.send(test);
    }
    std::vector<int> tos;
    pair.network.observe([&](const PacketRecord& record) {
        if (record.fate == Fate::arrived) tos.push_back(record.tos);
    });
    pair.arrivals();
    CHECK(tos == std::vector<int>{ect, ect, 3, 0});
}

TEST_CASE("virtual network: higher classes overtake in the queue") {
    Pair pair;
    LinkSettings link;
    link.rate = Rate{8'000'000'000};
    link.strict_priority = true;
    pair.network.set_between(0, 1, link);
    for (std::uint8_t i = 0; i < 4; ++i) {
        TestPacket test(870, true, i);
        test.packet.tos = static_cast<std::uint8_t>((i % 2 == 0 ? 8 : 56) << 2 | ect);
        pair.send(test);
    }
    CHECK(pair.arrivals() == Seen{{1'000, 0}, {2'000, 1}, {3'000, 3}, {4'000, 2}});
}

TEST_CASE("virtual network: jitter keeps the order of a lane, reordering does not") {
    for (const bool reorder : {false, true}) {
        CAPTURE(reorder);
        Pair pair;
        LinkSettings link;
        (reorder ? link.reorder_delay : link.jitter) = microseconds(100);
        link.reorder_ratio = reorder ? 0.5 : 0.0;
        pair.network.set_between(0, 1, link);
        for (std::uint8_t i = 0; i < 100; ++i) {
            TestPacket test(1, true, i);
            pair.send(test);
        }
        const Seen seen = pair.arrivals();
        CHECK(seen.size() == 100);
        const bool in_order = std::is_sorted(seen.begin(), seen.end(),
                                             [](const auto& a, const auto& b) { return a.second < b.second; });
        CHECK(in_order == !reorder);
    }
}

TEST_CASE("virtual network: random loss and bursts lose about what they should") {
    Pair pair(7);
    LinkSettings link;
    link.loss_ratio = 0.1;
    pair.network.set_between(0, 1, link);
    LinkSettings bursts;
    bursts.burst_enter_ratio = 0.01;
    bursts.burst_exit_ratio = 0.24;  // 4 % of the time in a burst
    bursts.burst_loss_ratio = 1.0;
    pair.network.set_downlink(1, bursts);
    constexpr int sent = 20'000;
    for (int i = 0; i < sent; ++i) {
        TestPacket test(1);
        pair.send(test);
        pair.arrivals();
    }
    CHECK(pair.network.count(Fate::lost_random) == doctest::Approx(0.1 * sent).epsilon(0.1));
    CHECK(pair.network.count(Fate::lost_burst) == doctest::Approx(0.04 * 0.9 * sent).epsilon(0.2));
}

TEST_CASE("virtual network: a burst ends after its longest time, though no packets come") {
    Pair pair;
    LinkSettings link;
    link.burst_enter_ratio = 1.0;
    link.burst_exit_ratio = 0.0;
    link.burst_longest = milliseconds(1);
    pair.network.set_between(0, 1, link);
    TestPacket test(1);
    pair.send(test);
    link.burst_enter_ratio = 0.0;
    pair.network.set_between(0, 1, link);
    pair.network.advance(Time{999'999});
    pair.send(test);
    CHECK(pair.network.count(Fate::lost_burst) == 2);
    pair.network.advance(Time{1'000'000});
    pair.send(test);
    CHECK(pair.arrivals().size() == 1);
}

TEST_CASE("virtual network: duplicates, damage and cuts") {
    Pair pair(3);
    LinkSettings link;
    link.duplicate_ratio = 1.0;
    link.corrupt_ratio = 1.0;
    pair.network.set_between(0, 1, link);
    TestPacket test(200);
    pair.send(test);
    pair.network.advance(Time{0});
    dlcp_packet out[4];
    REQUIRE(pair.network.receive(1, out) == 2);
    CHECK(out[0].head_bytes == 264);
    CHECK(std::memcmp(out[0].head, out[1].head, 264) == 0);
    int flipped = 0;
    for (int i = 0; i < 264; ++i) {
        const std::uint8_t was = i < 64 ? test.head[static_cast<std::size_t>(i)] : 0;
        flipped += __builtin_popcount(out[0].head[i] ^ was);
    }
    CHECK(flipped >= 1);
    CHECK(flipped <= 8);
    pair.network.release({out, 2});

    link = {};
    link.truncate_ratio = 1.0;
    pair.network.set_between(0, 1, link);
    pair.send(test);
    pair.network.advance(Time{0});
    REQUIRE(pair.network.receive(1, out) == 1);
    CHECK(out[0].head_bytes < 264);
    pair.network.release({out, 1});
}

TEST_CASE("virtual network: a dead path, a slow path, an outage, and datagrams that are too long") {
    Pair pair;
    LinkSettings link;
    link.paths = {{2, 1.0, {0}}, {3, 0.0, microseconds(5)}};
    link.outages = {{Time{1'000'000}, Time{2'000'000}}};
    link.max_datagram = Bytes{500};
    pair.network.set_between(0, 1, link);
    for (std::uint16_t path = 1; path <= 3; ++path) {
        TestPacket test(10, true, static_cast<std::uint8_t>(path));
        test.packet.path = path;
        pair.send(test);
    }
    TestPacket longer(437);
    pair.send(longer);
    CHECK(pair.arrivals() == Seen{{0, 1}, {5'000, 3}});
    CHECK(pair.network.count(Fate::lost_too_long) == 1);

    TestPacket test(10);
    pair.network.advance(Time{1'000'000});
    pair.send(test);
    CHECK(pair.arrivals().empty());
    pair.network.advance(Time{2'000'000});
    pair.send(test);
    CHECK(pair.arrivals().size() == 1);
}

TEST_CASE("virtual network: a host that does not read loses what its inbox cannot hold") {
    Pair pair;
    pair.network.set_inbox(1, Bytes{200});
    TestPacket test(10);
    for (int i = 0; i < 5; ++i) pair.send(test);
    CHECK(pair.network.count(Fate::lost_inbox) == 3);
    CHECK(pair.arrivals().size() == 2);
    pair.send(test);
    CHECK(pair.arrivals().size() == 1);
}

TEST_CASE("virtual network: one seed, one trace; and a fault on one link leaves the others' dice alone") {
    const auto trace = [](std::uint64_t seed, double loss_of_other_link) {
        VirtualNetwork network(seed);
        for (int i = 0; i < 3; ++i) network.add_host();
        LinkSettings link;
        link.loss_ratio = 0.3;
        link.jitter = microseconds(50);
        network.set_between(0, 1, link);
        link.loss_ratio = loss_of_other_link;
        network.set_between(0, 2, link);
        std::vector<std::int64_t> seen;
        network.observe([&](const PacketRecord& record) {
            if (record.to != 1) return;
            seen.push_back(record.at.value);
            seen.push_back(static_cast<std::int64_t>(record.fate));
        });
        for (int i = 0; i < 200; ++i) {
            TestPacket test(10);
            const dlcp_address to = VirtualNetwork::address(1 + static_cast<std::uint32_t>(i % 2));
            test.packet.address = &to;
            network.send(0, test.packet);
        }
        network.advance(Time{1'000'000});
        return seen;
    };
    CHECK(trace(1, 0.1) == trace(1, 0.1));
    CHECK(trace(1, 0.1) == trace(1, 0.9));
    CHECK(trace(1, 0.1) != trace(2, 0.1));
}

// The I/O table over it.

namespace {

struct Opened {
    explicit Opened(const char* fabric, std::uint16_t port = 0) {
        dlcp_io_config config{};
        config.extra = fabric;
        config.port = port;
        REQUIRE(table.open(&config, &io, error, sizeof error) == 0);
    }
    ~Opened() { table.close(io); }
    Opened(const Opened&) = delete;
    void send(const dlcp_address& to, std::uint8_t byte) {
        dlcp_packet packet{};
        REQUIRE(table.tx_get(io, &packet, 1) == 1);
        packet.head[0] = byte;
        packet.head_bytes = 1;
        packet.address = &to;
        REQUIRE(table.tx_put(io, &packet, 1) == 1);
    }
    int receive() {  // the byte, or -1
        dlcp_packet packet{};
        if (table.rx(io, &packet, 1) == 0) return -1;
        const int byte = packet.head[0];
        table.rx_done(io, &packet, 1);
        return byte;
    }
    const dlcp_io_table& table = *dlcp_virtual_driver();
    dlcp_io* io = nullptr;
    char error[200] = {};
};

}  // namespace

TEST_CASE("virtual driver: addresses, capabilities and refusals") {
    VirtualFabric fabric("addresses", 1);
    Opened one("addresses");
    Opened seven("addresses", 7);
    dlcp_address address{}, own{};
    char text[64];
    REQUIRE(one.table.resolve(one.io, "virtual:7", &address, text, sizeof text) == 0);
    seven.table.local_address(seven.io, &own);
    CHECK(std::memcmp(&address, &own, sizeof own) == 0);
    one.table.format(one.io, &address, text, sizeof text);
    CHECK(std::string(text) == "virtual:7");
    CHECK(one.table.resolve(one.io, "virtual", &address, text, sizeof text) < 0);
    CHECK(std::string(text) == "'virtual' is not a virtual address; write virtual:PORT");

    dlcp_io_capabilities capabilities{};
    one.table.capabilities(one.io, &capabilities);
    CHECK(capabilities.max_datagram_bytes == 9152);
    CHECK(capabilities.reports_ecn == 1);

    dlcp_io* io = nullptr;
    dlcp_io_config config{};
    config.extra = "addresses";
    config.port = 7;
    CHECK(one.table.open(&config, &io, text, sizeof text) < 0);
    CHECK(std::string(text) == "virtual port 7 is open already");
    config.extra = "nowhere";
    CHECK(one.table.open(&config, &io, text, sizeof text) < 0);
    CHECK(std::string(text) == "there is no virtual network named 'nowhere'");
}

TEST_CASE("virtual driver: one thread drives two hosts, and waiting moves the clock") {
    VirtualFabric fabric("one thread", 1);
    LinkSettings link;
    link.delay = milliseconds(3);
    Opened a("one thread"), b("one thread");
    fabric.set_between(1, 2, link);
    dlcp_address to{};
    b.table.local_address(b.io, &to);
    a.send(to, 42);
    CHECK(b.receive() == -1);
    b.table.wait(b.io, 1'000'000);
    CHECK(fabric.now() == Time{1'000'000});
    CHECK(b.receive() == -1);
    b.table.wait(b.io, -1);
    CHECK(fabric.now() == Time{3'000'000});
    CHECK(b.receive() == 42);
    a.table.wait(a.io, 500);
    CHECK(a.table.now_ns(a.io) == 3'000'500);
    a.table.wake(a.io);
    a.table.wait(a.io, 1'000'000'000);  // returns at once
    CHECK(a.table.now_ns(a.io) == 3'000'500);
}

TEST_CASE("virtual driver: two threads play ping-pong in virtual time, the same each run") {
    const auto play = [] {
        VirtualFabric fabric("ping pong", 9, 2);
        LinkSettings link;
        link.delay = microseconds(20);
        link.jitter = microseconds(10);
        fabric.set_between(1, 2, link);
        fabric.set_between(2, 1, link);
        Opened a("ping pong", 1);
        std::optional<Opened> b(std::in_place, "ping pong", 2);
        std::vector<std::int64_t> times;
        const auto serve = [](Opened& self, const dlcp_address& to, int rounds, std::vector<std::int64_t>* log) {
            for (int i = 0; i < rounds;) {
                self.table.wait(self.io, 1'000'000'000);
                const int byte = self.receive();
                if (byte < 0) continue;
                if (log != nullptr) log->push_back(self.table.now_ns(self.io));
                self.send(to, static_cast<std::uint8_t>(byte + 1));
                ++i;
            }
        };
        dlcp_address to_a{}, to_b{};
        a.table.local_address(a.io, &to_a);
        b->table.local_address(b->io, &to_b);
        a.send(to_b, 0);
        std::thread other([&] {
            serve(*b, to_a, 100, nullptr);
            b.reset();  // or the clock would wait for it
        });
        serve(a, to_b, 99, &times);
        a.table.wait(a.io, 10'000'000);  // until b has had its last
        other.join();
        return times;
    };
    const auto first = play();
    CHECK(first.size() == 99);
    CHECK(first.back() >= 99 * 40'000);
    CHECK(first.back() <= 99 * 60'000);
    CHECK(first == play());
}

}  // namespace dlcp

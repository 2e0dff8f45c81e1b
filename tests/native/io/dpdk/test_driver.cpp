// The dpdk driver over DPDK's virtual devices.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dpdk_ports.hpp"
#include "native/io/driver_checks.hpp"

using namespace dlcp::test;

TEST_CASE(
    "dpdk: runs with body and tail arrive whole, in order, copied or gathered, with every kind of checksum") {
    NEEDS_DPDK;
    for (const std::string payload : {"copy", "gather"}) {
        for (const std::string checksum : {"software", "none", "auto"}) {
            for (const bool v6 : {false, true}) {
                CAPTURE(payload);
                CAPTURE(checksum);
                CAPTURE(v6);
                const std::string words = "payload=" + payload + " checksum=" + checksum;
                const Io sender(at(0, words, v6 ? "fd09::1/64" : ""));
                const Io receiver(at(1, words, v6 ? "fd09::2/64" : ""));
                const dlcp_address to = join(sender, receiver);
                if (payload == "gather") wait_until_gathering(sender, to, receiver);
                const auto before = sender.statistics();
                const dlcp_io_counters before_counters = sender.counters();

                std::vector<Outgoing> outgoing = make_run(1, 20, 1372, 0, 0);
                append(outgoing, make_run(2, 16, 1372, 0, 2));
                append(outgoing, make_run(3, 100, 1001, 0, 46 << 2));
                append(outgoing, {{.head = "control only"}, {.head = "another length of control", .tail = "tag"}});
                append(outgoing, {{.head = pattern(63, 1), .body = pattern(901, 2), .tail = pattern(15, 3)}});
                CHECK(send_all(sender, to, outgoing) == static_cast<int>(outgoing.size()));
                check_arrived(outgoing, receiver.receive(7));

                CHECK(sender.counters().tx_packets - before_counters.tx_packets == outgoing.size());
                CHECK(sender.counters().tx_dropped_packets == before_counters.tx_dropped_packets);
                CHECK(receiver.statistic("rx_bad_checksum_frames") == 0);
                const auto after = sender.statistics();
                CHECK((after.at("tx_gathered_packets") > before.at("tx_gathered_packets")) ==
                      (payload == "gather"));
            }
        }
    }
}

TEST_CASE("dpdk: an echo goes back to where the packet came from") {
    NEEDS_DPDK;
    const Io a(at(0));
    const Io b(at(1));
    check_echo(a, b, join(a, b), make_run(5, 16, 1372, 0, 0));
}

TEST_CASE("dpdk: every TOS is read back, and CE is counted") {
    NEEDS_DPDK;
    for (const bool v6 : {false, true}) {
        CAPTURE(v6);
        const Io sender(at(0, "", v6 ? "fd09::1/64" : ""));
        const Io receiver(at(1, "", v6 ? "fd09::2/64" : ""));
        const dlcp_address to = join(sender, receiver);
        CHECK(receiver.capabilities().reports_ecn == 1);
        std::vector<Outgoing> outgoing;
        for (unsigned tos = 0; tos < 256; ++tos)
            outgoing.push_back({.head = pattern(100, tos), .tos = static_cast<std::uint8_t>(tos)});
        CHECK(send_all(sender, to, outgoing) == 256);
        check_arrived(outgoing, receiver.receive());
        CHECK(receiver.counters().ce_packets == 64);
    }
}

TEST_CASE("dpdk: a path is a source port, path 0 the advertised one, and any of them is answered") {
    NEEDS_DPDK;
    for (const std::uint16_t port : {std::uint16_t{0}, std::uint16_t{65533}}) {  // 65533: wraps
        CAPTURE(port);
        Settings settings = at(0, "", "", 8);
        settings.port = port;
        const Io sender(settings);
        const Io receiver(at(1));
        const dlcp_address to = join(sender, receiver);
        std::vector<Outgoing> outgoing;
        for (std::uint16_t path = 0; path < 8; ++path) append(outgoing, make_run(path, 4, 500, path, 0));
        CHECK(sender.send(to, outgoing) == 32);
        const std::vector<Incoming> incoming = receiver.receive();
        check_arrived(outgoing, incoming);
        std::set<std::string> sources;
        for (std::size_t i = 0; i < incoming.size(); ++i) {
            const std::string source = receiver.text_of(incoming[i].source);
            sources.insert(source);
            CHECK(source == receiver.text_of(incoming[i / 4 * 4].source));
        }
        CHECK(sources.size() == 8);
        CHECK(receiver.text_of(incoming[0].source) == sender.text());
        if (port != 0) CHECK(sources.contains("10.9.0.1:1028"));

        for (std::size_t i = 0; i < incoming.size(); i += 4)
            receiver.send(incoming[i].source, {{.head = "to " + std::to_string(i)}});
        CHECK(sender.receive().size() == 8);
    }
}

TEST_CASE("dpdk: unsent slots are returned, and slots come back in any number of puts") {
    NEEDS_DPDK;
    const Io sender(at(0));
    const Io receiver(at(1));
    const dlcp_address to = join(sender, receiver);
    const int burst = static_cast<int>(sender.capabilities().max_burst_packets);
    std::vector<dlcp_packet> packets(static_cast<std::size_t>(burst) + 10);
    CHECK(dpdk.tx_get(sender, packets.data(), burst + 10) == burst);
    CHECK(dpdk.tx_get(sender, packets.data() + burst, 1) == 0);  // all are lent
    for (int i = 0; i < burst; ++i) {
        dlcp_packet& packet = packets[static_cast<std::size_t>(i)];
        CHECK(packet.head_bytes == 0);
        CHECK(reinterpret_cast<std::uintptr_t>(packet.head) % 64 == 0);
        if (i % 2 == 1) continue;
        packet.head[0] = static_cast<std::uint8_t>(i);
        packet.head_bytes = 1;
        packet.address = &to;
    }
    CHECK(dpdk.tx_put(sender, packets.data(), 10) == 5);
    CHECK(dpdk.tx_put(sender, packets.data() + 10, burst - 10) == (burst - 10) / 2);
    const std::vector<Incoming> incoming = receiver.receive();
    REQUIRE(incoming.size() == static_cast<std::size_t>(burst / 2));
    for (std::size_t i = 0; i < incoming.size(); ++i)
        CHECK(incoming[i].datagram == std::string(1, static_cast<char>(2 * i)));
    CHECK(dpdk.tx_get(sender, packets.data(), burst) == burst);
    CHECK(dpdk.tx_put(sender, packets.data(), burst) == 0);
}

TEST_CASE("dpdk: what is too long, or no packet, is counted, and what follows is not touched by it") {
    NEEDS_DPDK;
    const Io sender(at(0));
    const Io receiver(at(1));
    const dlcp_address to = join(sender, receiver);
    CHECK(sender.capabilities().max_datagram_bytes == 1472);
    const std::uint64_t dropped = sender.counters().tx_dropped_packets;
    const Outgoing good = {.head = "good"};
    const Outgoing longest = {.head = pattern(64, 1), .body = pattern(1472 - 64, 1)};
    const Outgoing too_long = {.head = pattern(64, 1), .body = pattern(1472 - 63, 1)};
    CHECK(sender.send(to, {good, too_long, longest, too_long, good}) == 3);
    check_arrived({good, longest, good}, receiver.receive());
    CHECK(sender.counters().tx_dropped_packets == dropped + 2);

    const dlcp_address none = {};
    dlcp_packet packets[7];
    REQUIRE(dpdk.tx_get(sender, packets, 7) == 7);
    for (dlcp_packet& packet : packets) {
        packet.head_bytes = 1;
        packet.address = &to;
    }
    std::uint8_t elsewhere[64] = {};
    packets[0].address = nullptr;
    packets[1].address = &none;
    packets[2].flags = DLCP_PACKET_VIRTUAL;
    packets[2].body_bytes = 100;
    packets[3].head_bytes = DLCP_HEAD_CAPACITY + 1;
    packets[4].tail_bytes = UINT32_MAX;
    packets[5].path = UINT16_MAX;  // wraps: path ids are the engine's business
    packets[6].head = elsewhere;
    CHECK(dpdk.tx_put(sender, packets, 7) == 1);
    CHECK(sender.counters().tx_dropped_packets == dropped + 8);
    CHECK(receiver.receive().size() == 1);
}

TEST_CASE("dpdk: jumbo frames, where the device has room for them") {
    NEEDS_DPDK;
    for (const std::string payload : {"copy", "gather"}) {
        CAPTURE(payload);
        const Io sender(at(2, "mtu=9000 payload=" + payload));
        const Io receiver(at(3, "mtu=9000"));
        REQUIRE(sender.capabilities().max_datagram_bytes == 8972);
        const dlcp_address to = join(sender, receiver);
        const std::vector<Outgoing> outgoing = make_run(1, 40, 8972 - 80, 0, 0);
        CHECK(sender.send(to, outgoing) == 40);
        check_arrived(outgoing, receiver.receive());
    }
}

TEST_CASE("dpdk: buffers stay as they are until rx_done, and what comes back twice is taken once") {
    NEEDS_DPDK;
    const Io sender(at(0));
    const Io receiver(at(1));
    const dlcp_address to = join(sender, receiver);
    const std::uint64_t used_before = receiver.statistic("rx_used_buffers");
    const std::vector<Outgoing> outgoing = make_run(1, 256, 1372, 0, 0);
    std::vector<dlcp_packet> packets(1024);
    int held = 0;
    for (int i = 0; i < 4; ++i) {
        REQUIRE(send_all(sender, to, outgoing) == 256);
        while (const int count = dpdk.rx(receiver, packets.data() + held, 50)) held += count;
    }
    CHECK(held > 512);
    for (int i = 0; i < held; ++i) {
        const dlcp_packet& packet = packets[static_cast<std::size_t>(i)];
        REQUIRE(std::string(reinterpret_cast<const char*>(packet.head), packet.head_bytes) ==
                outgoing[static_cast<std::size_t>(i) % 256].datagram());
        REQUIRE(receiver.text_of(*packet.address) == sender.text());
    }
    CHECK(receiver.statistic("rx_used_buffers") >= used_before + static_cast<unsigned>(held));
    std::reverse(packets.begin(), packets.begin() + held);
    for (int i = 0; i < held; i += 3) dpdk.rx_done(receiver, packets.data() + i, std::min(3, held - i));
    dpdk.rx_done(receiver, packets.data(), 1);
    CHECK(receiver.statistic("rx_used_buffers") == used_before);
}

TEST_CASE("dpdk: what is promised to fit the receive buffer does, and a full one is lost and counted") {
    NEEDS_DPDK;
    const Io sender(at(0));
    const Io receiver(at(1));
    const dlcp_address to = join(sender, receiver);
    const std::uint32_t promised_bytes = receiver.capabilities().receive_buffer_bytes;
    REQUIRE(promised_bytes >= 128 * 1024);
    const Outgoing packet = {.head = pattern(64, 1), .body = pattern(1472 - 64, 1)};
    const std::size_t promised = promised_bytes / 1472;
    const std::uint64_t early = sender.counters().tx_dropped_packets;
    CHECK(send_all(sender, to, std::vector<Outgoing>(promised, packet)) == static_cast<int>(promised));
    const dlcp_io_counters before = sender.counters();
    CHECK(before.tx_dropped_packets == early);
    const std::int64_t start_ns = dpdk.now_ns(sender);
    for (int i = 0; i < 40; ++i) send_all(sender, to, std::vector<Outgoing>(64, packet));
    const std::uint64_t sent = sender.counters().tx_packets - before.tx_packets;
    const std::uint64_t dropped = sender.counters().tx_dropped_packets - before.tx_dropped_packets;
    CHECK(dropped > 0);
    CHECK(sent + dropped == 40 * 64);
    CHECK(receiver.receive().size() == promised + sent);
    CHECK(dpdk.now_ns(sender) - start_ns < 5'000'000'000);  // each put waits for a bounded time
}

TEST_CASE("dpdk: packets wait until their neighbour says where it is, in order, a bounded number of them") {
    NEEDS_DPDK;
    for (const bool v6 : {false, true}) {
        CAPTURE(v6);
        // It opens before there is a link, and does nothing until it is asked for packets: so it has said nothing of itself
        // when some are sent to it.
        const Io receiver(at(0, "", v6 ? "fd09::1/64" : ""));
        const Io sender(at(1, "", v6 ? "fd09::2/64" : ""));
        const dlcp_address to = sender.resolve(receiver.text());
        const std::vector<Outgoing> outgoing = make_run(1, 40, 1372, 0, 2);
        CHECK(sender.send(to, outgoing) == 40);  // taken; what becomes of them is counted later
        CHECK(sender.counters().tx_packets == 0);
        CHECK(sender.counters().tx_dropped_packets == 8);
        std::vector<Incoming> incoming;
        const auto limit = std::chrono::steady_clock::now() + patience;
        while (incoming.size() < 32 && std::chrono::steady_clock::now() < limit) {
            dpdk.wait(sender, 100'000);
            CHECK(sender.receive().empty());
            for (Incoming& packet : receiver.receive()) incoming.push_back(std::move(packet));
        }
        check_arrived({outgoing.begin() + 8, outgoing.end()}, incoming);
        CHECK(sender.counters().tx_packets == 32);
        CHECK(sender.statistic("tx_pending_packets") == 40);

        // Neighbours that nobody is: 32 for each, 256 in all.
        for (int i = 0; i < 9; ++i) {
            const std::string nobody =
                v6 ? "[fd09::7" + std::to_string(i) + "]:7000" : "10.9.0.7" + std::to_string(i) + ":7000";
            sender.send(sender.resolve(nobody), std::vector<Outgoing>(40, {.head = "anybody?"}));
        }
        CHECK(sender.counters().tx_dropped_packets == 8 + 9 * 40 - 256);
        CHECK(sender.statistic("tx_pending_dropped_packets") == 8 + 9 * 40 - 256);
        CHECK(sender.send(to, outgoing) == 40);  // in nobody's way
        check_arrived(outgoing, receiver.receive());
    }
}

TEST_CASE("dpdk: a neighbour that was named needs no asking") {
    NEEDS_DPDK;
    const Io sender(at(0, "neighbour=10.9.0.2@02:00:00:00:00:02"));
    const Io receiver(at(1));
    const dlcp_address to = sender.resolve("10.9.0.2:7000");
    CHECK(sender.send(to, {{.head = "x"}}) <= 1);
    CHECK(sender.statistic("tx_pending_packets") == 0);
    CHECK(sender.statistic("tx_address_request_frames") == 0);
}

TEST_CASE("dpdk: two ports share the paths, and either end may name its addresses") {
    NEEDS_DPDK;
    Settings left = at(4, "port=net_memif6@10.8.0.1/24", "10.9.0.1/24", 8);
    Settings right = at(5, "port=net_memif7@10.8.0.2/24", "10.9.0.2/24", 8);
    const Io sender(left);
    const Io receiver(right);
    const std::string text = receiver.text();
    CHECK(contains(text, "10.9.0.2:"));
    CHECK(contains(text, "+dpdk:10.8.0.2:"));
    const dlcp_address to = join(sender, receiver, 8);
    CHECK(sender.text_of(to) == text.substr(0, text.find('+')));
    std::vector<Outgoing> outgoing;
    for (std::uint16_t path = 0; path < 8; ++path) append(outgoing, make_run(path, 8, 900, path, 0));
    CHECK(sender.send(to, outgoing) == 64);
    const std::vector<Incoming> incoming = receiver.receive();
    check_arrived(outgoing, incoming, false);
    int by_first = 0;
    for (const Incoming& packet : incoming) by_first += contains(receiver.text_of(packet.source), "10.9.0.1:");
    CHECK(by_first == 32);

    // Whoever does not know the word takes the first address; so does who is told no more.
    const dlcp_address first = sender.resolve(text.substr(0, text.find('+')) + "+shm:whatever/0");
    CHECK(sender.send(first, outgoing) == 64);
    for (const Incoming& packet : receiver.receive())
        CHECK(contains(receiver.text_of(packet.source), "10.9.0.1:"));
    CHECK(contains(refusal(at(7)).text, "net_memif7"));  // taken
}

TEST_CASE("dpdk: wait ends by timeout, packet or wake, however it waits") {
    NEEDS_DPDK;
    for (const std::string poll : {"auto", "spin", "yield", "sleep"}) {
        CAPTURE(poll);
        const Io io(at(0, "poll=" + poll));
        const Io other(at(1));
        const dlcp_address to = join(other, io);
        CHECK(io.capabilities().pollable == (poll == "auto" || poll == "sleep" ? 1 : 0));
        check_wait(io, other, to);

        const WatchedThread waiting;
        std::thread sender([&] {
            CHECK(waiting.await_sleep_or_work());
            other.send(to, {{.head = "later"}});
        });
        CHECK(wait_and_receive(io).size() == 1);
        sender.join();
    }
}

TEST_CASE("dpdk: wake from another thread, every time") {
    NEEDS_DPDK;
    const Io io(at(0));
    const WatchedThread waiting;
    check_every_wake(io, [&](int round) {
        if (round % 100 == 0) CHECK(waiting.await_sleep());  // the next wake ends a sleep
    });
}

TEST_CASE("dpdk: a watched descriptor ends wait") {
    NEEDS_DPDK;
    for (const std::string poll : {"auto", "spin"}) {
        CAPTURE(poll);
        const Io io(at(0, "poll=" + poll));
        int ends[2];
        REQUIRE(pipe(ends) == 0);
        std::uint8_t readable = 0;
        REQUIRE(dpdk.watch(io, ends[0], &readable) == 0);
        const WatchedThread waiting;
        for (int i = 0; i < 3; ++i) {
            std::thread writer([&] {
                CHECK(waiting.await_sleep_or_work());
                CHECK(write(ends[1], "x", 1) == 1);
            });
            dpdk.wait(io, -1);
            writer.join();
            CHECK(readable == 1);
            readable = 0;
        }
        dpdk.unwatch(io, ends[0]);
        CHECK(write(ends[1], "x", 1) == 1);
        const std::int64_t start_ns = dpdk.now_ns(io);
        dpdk.wait(io, 1'000'000);
        CHECK(dpdk.now_ns(io) - start_ns >= 1'000'000);
        CHECK(readable == 0);
        close(ends[0]);
        close(ends[1]);
    }
}

TEST_CASE("dpdk: a flood of what is no datagram neither blocks nor ends a wait") {
    NEEDS_DPDK;
    Settings settings = at(0);
    settings.words = "port=net_null0";
    const Io io(settings);
    dlcp_packet packet;
    CHECK(dpdk.rx(io, &packet, 1) == 0);
    const std::int64_t start_ns = dpdk.now_ns(io);
    dpdk.wait(io, 2'000'000);
    CHECK(dpdk.now_ns(io) - start_ns >= 2'000'000);
    CHECK(io.counters().rx_packets == 0);
}

// DPDK takes a memif port down on a thread of its own, memory that is being read and all (interrupt_thread.hpp).
TEST_CASE("dpdk: a peer may leave in the middle of a burst") {
    NEEDS_DPDK;
    for (int round = 0; round < 5; ++round) {
        const Io survivor(at(0));
        auto leaver = std::make_unique<Io>(at(1));
        // A link is looked at now and then: one that is not seen to come is not seen to go.
        await_event(survivor, DLCP_IO_LINK_UP, *leaver);
        const dlcp_address to = join(*leaver, survivor);
        bool told = false;
        std::thread reader([&] {
            const auto limit = std::chrono::steady_clock::now() + patience;
            while (!told && std::chrono::steady_clock::now() < limit) {
                survivor.receive();
                told = has_told(survivor, DLCP_IO_LINK_DOWN);
            }
        });
        const std::vector<Outgoing> outgoing = make_run(1, 64, 1372, 0, 0);
        for (int i = 0; i < 50; ++i) leaver->send(to, outgoing);
        leaver.reset();
        reader.join();
        CHECK(told);
    }
}

TEST_CASE("dpdk: no buffer is lost") {
    NEEDS_DPDK;
    const auto used = [](const Io& io) {
        const auto all = io.statistics();
        std::uint64_t sum = 0;
        for (const auto& [name, value] : all)
            if (name.ends_with("_used_buffers")) sum += value;
        return sum;
    };
    for (const std::string payload : {"copy", "gather"}) {
        CAPTURE(payload);
        const Io a(at(8, "payload=" + payload, "10.9.0.1/24", 4));
        const Io b(at(9, "payload=" + payload, "10.9.0.2/24", 4));
        const dlcp_address to = join(a, b);
        const dlcp_address back = b.resolve(a.text());
        const auto turn = [&](unsigned seed) {
            std::vector<Outgoing> outgoing = make_run(seed, 30, 1200, static_cast<std::uint16_t>(seed), 0);
            append(outgoing, {{.head = pattern(64, 1), .body = pattern(9000, 1)}, {.head = "small"}});
            a.send(to, outgoing);
            b.send(back, outgoing);
            CHECK(a.receive(7).size() == 31);
            CHECK(b.receive().size() == 31);
        };
        turn(0);
        const std::uint64_t a_before = used(a), b_before = used(b);
        for (unsigned seed = 1; seed < 200; ++seed) turn(seed);
        CHECK(used(a) == a_before);
        CHECK(used(b) == b_before);
        a.send(to, make_run(1, 60, 1200, 0, 0));                           // lies in b's ring when it closes
        dpdk.wait(b, 0);                                                   // some of it is kept by b
        a.send(a.resolve("10.9.0.99:7000"), make_run(1, 20, 1200, 0, 0));  // waits for a neighbour
    }
    // All is closed: every pool of buffers is full again. The plugin brings DPDK; this program is not linked with it.
    void* const mempool = dlopen("librte_mempool.so.23", RTLD_NOW | RTLD_NOLOAD);
    if (mempool == nullptr) return;
    using Walk = void (*)(void (*)(void*, void*), void*);
    using Count = unsigned (*)(const void*);
    const auto walk = reinterpret_cast<Walk>(dlsym(mempool, "rte_mempool_walk"));
    static const auto in_use = reinterpret_cast<Count>(dlsym(mempool, "rte_mempool_in_use_count"));
    REQUIRE(bool(walk));
    REQUIRE(bool(in_use));
    unsigned total = 0;
    walk([](void* pool, void* sum) { *static_cast<unsigned*>(sum) += in_use(pool); }, &total);
    CHECK(total == 0);
}

TEST_CASE("dpdk: that no buffer is free is told once, and sending goes on when some are") {
    NEEDS_DPDK;
    const Io a(at(0)), b(at(1, "", "10.9.0.2/24"));
    const dlcp_address to = join(a, b);
    REQUIRE(b.send(b.resolve(a.text()), {{.head = "kept"}}) == 1);
    dlcp_packet kept = {};
    REQUIRE(dpdk.rx(a, &kept, 1) == 1);

    // All free buffers of pools for sending are taken by this thread, as copies of that packet. The plugin brings DPDK;
    // this program is not linked with it.
    void* const plugin = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(bool(plugin));
    using Walk = void (*)(void (*)(void*, void*), void*);
    using Copy = void* (*)(const void*, void*, std::uint32_t, std::uint32_t);
    using FreeBulk = void (*)(void**, unsigned);
    const auto walk = reinterpret_cast<Walk>(dlsym(plugin, "rte_mempool_walk"));
    const auto copy = reinterpret_cast<Copy>(dlsym(plugin, "rte_pktmbuf_copy"));
    const auto free_bulk = reinterpret_cast<FreeBulk>(dlsym(plugin, "rte_pktmbuf_free_bulk"));
    REQUIRE((walk != nullptr && copy != nullptr && free_bulk != nullptr));
    std::vector<void*> pools, taken;
    walk(
        [](void* pool, void* found) {
            // The name is what a pool begins with (rte_mempool.h).
            if (std::string(static_cast<const char*>(pool)).find("_tx_") != std::string::npos)
                static_cast<std::vector<void*>*>(found)->push_back(pool);
        },
        &pools);
    // Those in the caches too, which belong to numbers that drivers have (io/dpdk/lcore.hpp).
    auto* const number = static_cast<unsigned*>(dlsym(plugin, "per_lcore__lcore_id"));  // of this thread
    REQUIRE(bool(number));
    const unsigned number_before = *number;
    const auto take_all = [&] {
        for (*number = 0; *number < 8; ++*number) {
            for (void* const pool : pools)
                while (void* const buffer = copy(reinterpret_cast<void*>(kept.cookie), pool, 0, 1))
                    taken.push_back(buffer);
        }
        *number = number_before;
    };
    take_all();
    std::vector<dlcp_packet> packets(64);
    // What the driver had in hand is sent, and taken too.
    int lent = 0;
    for (int burst = 0; burst < 4 && (lent = dpdk.tx_get(a, packets.data(), 64)) > 0; ++burst) {
        for (int i = 0; i < lent; ++i) {
            packets[static_cast<std::size_t>(i)].head[0] = 'x';
            packets[static_cast<std::size_t>(i)].head_bytes = 1;
            packets[static_cast<std::size_t>(i)].address = &to;
        }
        dpdk.tx_put(a, packets.data(), lent);
        take_all();
    }
    REQUIRE(lent == 0);
    CHECK(dpdk.tx_get(a, packets.data(), 64) == 0);
    const auto told = [&] {
        const auto events = a.events();
        return std::count_if(events.begin(), events.end(),
                             [](const dlcp_io_event& event) { return event.kind == DLCP_IO_NO_BUFFERS; });
    };
    CHECK(told() == 1);
    CHECK(a.statistic("tx_no_buffer_calls") >= 2);

    free_bulk(taken.data(), static_cast<unsigned>(taken.size()));
    dpdk.rx_done(a, &kept, 1);
    b.receive();
    CHECK(a.send(to, {{.head = "after"}}) == 1);
    const auto after = b.receive();
    REQUIRE(after.size() == 1);
    CHECK(after[0].datagram == "after");
    CHECK(told() == 0);
}

TEST_CASE("dpdk: open names what is wrong and what to do") {
    NEEDS_DPDK;
    Settings settings = at(0);
    SUBCASE("paths") {
        settings.paths = 0;
        CHECK(refusal(settings).result == -EINVAL);
        settings.paths = 65;
        CHECK(contains(refusal(settings).text, "paths is 65: choose 1 to 64"));
    }
    SUBCASE("datagram size, flags, interface") {
        settings.max_datagram_bytes = 100;
        CHECK(contains(refusal(settings).text, "max_datagram_bytes is 100"));
        settings.max_datagram_bytes = 0;
        settings.flags = 8;
        CHECK(contains(refusal(settings).text, "flags 0x8"));
        settings.flags = 0;
        settings.interface_name = "eth0";
        CHECK(contains(refusal(settings).text, "interface is eth0, and port=net_memif0"));
    }
    SUBCASE("words") {
        settings.words = "port=net_memif0 prot=1";
        const OpenFailure failure = refusal(settings);
        CHECK(failure.result == -EDOM);
        CHECK(contains(failure.text, "prot"));
    }
    SUBCASE("a port that is not there, one that is in use, and again when it is not") {
        settings.words = "port=net_memif77";
        CHECK(contains(refusal(settings).text, "net_memif0"));  // of those there are
        {
            const Io first(at(0));
            CHECK(refusal(at(0)).result == -EBUSY);
        }
        const Io again(at(0));
    }
    SUBCASE("no place for the sentence") {
        dlcp_io* io = nullptr;
        CHECK(dpdk.open(nullptr, &io, nullptr, 0) == -EINVAL);
        const dlcp_io_config config = {};
        CHECK(dpdk.open(&config, nullptr, nullptr, 0) == -EINVAL);
        CHECK(dpdk.open(&config, &io, nullptr, 0) == -EINVAL);
    }
}

TEST_CASE("dpdk: addresses as text, both ways, and who cannot be reached") {
    NEEDS_DPDK;
    const Io io(at(0, "", "10.9.0.1/24"));
    dlcp_address address;
    char error[512];
    CHECK(io.text_of(io.resolve("10.9.0.2:7000")) == "10.9.0.2:7000");
    char tiny[6];
    dpdk.format(io, &address, tiny, sizeof tiny);
    const dlcp_address none = {};
    CHECK(io.text_of(none) == "(no address)");
    const char* bad[] = {"",      "10.9.0.2", "10.9.0.2:",      "10.9.0.2:0",   "10.9.0.2:65536",
                         ":7000", "[::1]:7",  "224.0.0.1:7000", "0.0.0.0:7000", "10.9.0.2:7+dpdk:10.9.0.3"};
    for (const char* text : bad) {
        CAPTURE(text);
        error[0] = '\0';
        CHECK(dpdk.resolve(io, text, &address, error, sizeof error) < 0);
        CHECK(strlen(error) > 10);
    }
    CHECK(dpdk.resolve(io, "10.1.0.2:7000", &address, error, sizeof error) == -EHOSTUNREACH);
    CHECK(contains(error, "10.9.0.1/24 and no gateway"));
    CHECK(dpdk.resolve(io, nullptr, &address, error, sizeof error) == -EINVAL);
    CHECK(dpdk.resolve(io, "10.9.0.2:1", nullptr, error, sizeof error) == -EINVAL);

    const Io routed(at(1, "gateway=10.9.0.254", "10.9.0.2/24"));
    CHECK(routed.text_of(routed.resolve("10.1.0.2:7000")) == "10.1.0.2:7000");
}

TEST_CASE("dpdk: capabilities follow port and configuration") {
    NEEDS_DPDK;
    Settings settings = at(0);
    settings.max_datagram_bytes = 1000;
    {
        const Io io(settings);
        CHECK(io.capabilities().max_datagram_bytes == 1000);
        CHECK(io.capabilities().is_loopback == 0);
        CHECK(io.capabilities().wants_runs == 0);
    }
    // Half of what the ring holds, since a packet takes a slot however short it is.
    CHECK(Io(at(0)).capabilities().receive_buffer_bytes == 1024 * 1472 / 2);
    CHECK(Io(at(6)).capabilities().receive_buffer_bytes == 256 * 1472 / 2);
    const Io v6(at(0, "", "fd09::1/64"));
    CHECK(v6.capabilities().max_datagram_bytes == 1452);
    const std::string text = v6.text();
    const int port = std::stoi(text.substr(text.rfind(':') + 1));
    CHECK(port >= 49152);
    CHECK(contains(text, "[fd09::1]:"));
}

TEST_CASE("dpdk: a closed driver answers, and does nothing") {
    NEEDS_DPDK;
    check_closed(dpdk);
    dlcp_io_event event;
    CHECK(dpdk.watch(nullptr, 0, nullptr) == -EBADF);
    dpdk.unwatch(nullptr, 0);
    CHECK(dpdk.events(nullptr, &event, 1) == 0);
    CHECK(dpdk.statistics(nullptr, nullptr, 0) == 0);
    const dlcp_address none = {};
    char text[128];
    dpdk.format(nullptr, &none, text, sizeof text);
    CHECK(std::string(text) == "(no address)");
}

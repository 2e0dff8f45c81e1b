// The dpdk driver with several queues, several ports and several threads, over DPDK's virtual devices.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <stdio.h>
#include <stdlib.h>

#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "dpdk_ports.hpp"
#include "native/io/driver_checks.hpp"

using namespace dlcp::test;

namespace {

Settings two_ports(int number, const std::string& words, std::uint16_t paths) {
    const std::string host = std::to_string(number % 2 + 1) + "/24";
    return at(number, "port=net_memif" + std::to_string(number + 2) + "@10.8.0." + host + " " + words,
              "10.9.0." + host, paths);
}

// Runs of all paths in one burst, so that more than one queue has some.
std::vector<Outgoing> one_burst(std::uint16_t paths, unsigned seed) {
    std::vector<Outgoing> outgoing;
    for (std::uint16_t path = 0; path < paths; ++path)
        append(outgoing, make_run(seed + path, 64u / paths, 1372, path, 0));
    return outgoing;
}

}  // namespace

TEST_CASE("dpdk: payload stays linked with two queues, and with two ports, in one burst") {
    NEEDS_DPDK;
    constexpr std::uint16_t paths = 4;
    for (const bool ports : {false, true}) {
        CAPTURE(ports);
        const std::string words = "payload=gather queues=2";
        const Io sender(ports ? two_ports(4, "payload=gather", paths) : at(8, words, "", paths));
        const Io receiver(ports ? two_ports(5, "payload=gather", paths) : at(9, words, "", paths));
        const dlcp_address to = join(sender, receiver, paths);
        wait_until_gathering(sender, to, receiver);
        // Each port finds out for itself.
        const auto limit = std::chrono::steady_clock::now() + patience;
        for (std::uint64_t before = 0; sender.statistic("tx_gathered_packets") < before + 64;) {
            REQUIRE(std::chrono::steady_clock::now() < limit);
            before = sender.statistic("tx_gathered_packets");
            dpdk.wait(sender, 1'000'000);
            sender.send(to, one_burst(paths, 1));
            receiver.receive();
        }
        const std::uint64_t gathered = sender.statistic("tx_gathered_packets");
        const std::uint64_t copied = sender.statistic("tx_copied_packets");
        for (unsigned seed = 1; seed <= 3; ++seed) {
            const std::vector<Outgoing> outgoing = one_burst(paths, seed);
            CHECK(sender.send(to, outgoing) == 64);
            check_arrived(outgoing, receiver.receive(), false);
        }
        CHECK(sender.statistic("tx_gathered_packets") == gathered + 3 * 64);
        CHECK(sender.statistic("tx_copied_packets") == copied);
    }
}

TEST_CASE("dpdk: with two ports and two queues each, paths are on all of the queues") {
    NEEDS_DPDK;
    constexpr std::uint16_t paths = 4;
    const Io sender(two_ports(4, "queues=2", paths));
    const Io receiver(two_ports(5, "queues=2", paths));
    const dlcp_address to = join(sender, receiver, paths);
    const auto before = receiver.statistics();
    const std::vector<Outgoing> outgoing = one_burst(paths, 1);
    CHECK(sender.send(to, outgoing) == 64);
    check_arrived(outgoing, receiver.receive(), false);
    int queues = 0;
    for (const auto& [name, value] : receiver.statistics()) {
        if (!name.ends_with("_rx_q0_packets") && !name.ends_with("_rx_q1_packets")) continue;
        ++queues;
        CAPTURE(name);
        CHECK(value - before.at(name) == 16);
    }
    CHECK(queues == 4);
}

// Each thread's number would come with a cache of its own in every pool.
TEST_CASE("dpdk: threads that drove and live on keep no buffers") {
    NEEDS_DPDK;
    const Io a(at(8)), b(at(9));
    const dlcp_address to = join(a, b), back = b.resolve(a.text());
    const std::vector<Outgoing> outgoing = make_run(1, 64, 1372, 0, 0);
    const auto turn = [&] {
        CHECK(a.send(to, outgoing) == 64);
        CHECK(b.receive().size() == 64);
        CHECK(b.send(back, outgoing) == 64);
        CHECK(a.receive().size() == 64);
        dpdk.wait(a, 0);
        dpdk.wait(b, 0);
    };
    constexpr int rounds = 16;
    std::latch done(1);
    std::vector<std::thread> threads;
    for (int i = 0; i < rounds; ++i) {
        std::latch driven(1);
        threads.emplace_back([&] {
            turn();
            driven.count_down();
            done.wait();
        });
        driven.wait();
    }
    turn();
    CHECK(a.statistic("tx_no_buffer_calls") == 0);
    CHECK(b.statistic("tx_no_buffer_calls") == 0);
    CHECK(a.statistic("_rx_no_buffer_packets") == 0);
    CHECK(b.statistic("_rx_no_buffer_packets") == 0);
    done.count_down();
    for (std::thread& thread : threads) thread.join();
}

TEST_CASE("dpdk: a driver that is closed leaves nothing in its caches") {
    NEEDS_DPDK;
    {
        const Io a(at(8)), b(at(9));
        join(a, b);
    }
    // The plugin brings DPDK; this program is not linked with it.
    void* const plugin = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(bool(plugin));
    const auto dump = reinterpret_cast<void (*)(FILE*)>(dlsym(plugin, "rte_mempool_list_dump"));
    REQUIRE(bool(dump));
    char* text = nullptr;
    std::size_t bytes = 0;
    FILE* const file = open_memstream(&text, &bytes);
    REQUIRE(file != nullptr);
    dump(file);
    fclose(file);
    const std::string pools(text, bytes);
    free(text);
    dlclose(plugin);
    const std::string word = "total_cache_count=";
    std::size_t found = 0;
    for (std::size_t at = pools.find(word); at != std::string::npos; at = pools.find(word, at + 1), ++found)
        CHECK(std::stoi(pools.substr(at + word.size())) == 0);
    CHECK(found >= 4);
}

TEST_CASE("dpdk: the receive buffer is what one queue of one port holds") {
    NEEDS_DPDK;
    CHECK(Io(at(8, "queues=2")).capabilities().receive_buffer_bytes == 1024 * 1472 / 2);
    // Of 1024 and 256 packets; who has but one port fills one.
    CHECK(Io(two_ports(4, "queues=2", 4)).capabilities().receive_buffer_bytes == 256 * 1472 / 2);
}

TEST_CASE("dpdk: that frames are lost for want of buffers is told once, until they are no more") {
    NEEDS_DPDK;
    const Io a(at(8)), b(at(9));
    const dlcp_address to = join(a, b);
    const auto drive = [&] {  // through two looks at the counters at least, which are a fifth of a second apart
        int told = 0;
        for (int i = 0; i < 10; ++i) {
            dpdk.wait(b, 60'000'000);
            for (const dlcp_io_event& event : b.events()) told += event.kind == DLCP_IO_NO_BUFFERS;
        }
        return told;
    };
    std::vector<dlcp_packet> kept(8192);
    const std::vector<Outgoing> outgoing(64, {.head = "kept"});
    for (int round = 0; round < 2; ++round) {
        CAPTURE(round);
        int used = 0;
        for (bool more = true; more;) {
            a.send(to, outgoing);
            const int before = used;
            while (const int count = dpdk.rx(b, kept.data() + used, 64)) used += count;
            more = used > before;
            REQUIRE(used + 64 <= static_cast<int>(kept.size()));
        }
        CHECK(drive() == 1);
        CHECK(drive() == 0);
        dpdk.rx_done(b, kept.data(), used);
        b.receive();
        CHECK(drive() == 0);
    }
}

TEST_CASE("dpdk: timers of devices run") {
    NEEDS_DPDK;
    const Io io(at(0));
    // As a device sets one when it is opened, under the number of who opens it: here any of those that may be the driver's.
    // The plugin brings DPDK; this program is not linked with it.
    struct alignas(64) Timer {
        unsigned char bytes[512] = {};
    };
    using Init = void (*)(Timer*);
    using Reset = int (*)(Timer*, std::uint64_t ticks, int type, unsigned lcore, void (*)(Timer*, void*), void*);
    using Stop = int (*)(Timer*);
    void* const plugin = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
    const auto init = plugin != nullptr ? reinterpret_cast<Init>(dlsym(plugin, "rte_timer_init")) : nullptr;
    if (init == nullptr) {
        MESSAGE("skipped: DPDK is here without its timers");
        return;
    }
    const auto reset = reinterpret_cast<Reset>(dlsym(plugin, "rte_timer_reset"));
    const auto stop = reinterpret_cast<Stop>(dlsym(plugin, "rte_timer_stop"));
    REQUIRE((reset != nullptr && stop != nullptr));
    std::vector<Timer> timers(8);
    int fired = 0;
    for (unsigned i = 0; i < timers.size(); ++i) {
        init(&timers[i]);
        REQUIRE(reset(
                    &timers[i], 0, 0, 1 + i, [](Timer*, void* count) { ++*static_cast<int*>(count); }, &fired) ==
                0);
    }
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (fired == 0 && std::chrono::steady_clock::now() < limit) dpdk.wait(io, 10'000'000);
    CHECK(fired == 1);
    for (Timer& timer : timers) stop(&timer);
    dlclose(plugin);
}

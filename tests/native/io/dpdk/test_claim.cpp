// How the dpdk driver finds out whether its address is free, on a device that has a link and leads nowhere.
#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "dpdk_ports.hpp"

namespace {

using namespace dlcp::test;

constexpr const char* device = "net_null9";

// Plugged in for a test.
class Plugged {
public:
    Plugged() {
        refusal({.words = "port=absent"});  // starts DPDK, as every test does
        REQUIRE(function_of_dpdk<int(const char*, const char*, const char*)>("rte_eal_hotplug_add")(
                    "vdev", device, "no-rx=1") == 0);
        REQUIRE(function_of_dpdk<int(const char*, std::uint16_t*)>("rte_eth_dev_get_port_by_name")(device, &id_) ==
                0);
    }
    ~Plugged() { function_of_dpdk<int(const char*, const char*)>("rte_eal_hotplug_remove")("vdev", device); }
    Plugged(const Plugged&) = delete;
    Plugged& operator=(const Plugged&) = delete;

    std::uint64_t sent_frames() const {
        std::array<std::uint64_t, 512> statistics{};  // rte_eth_stats and more: ipackets, opackets, …
        function_of_dpdk<int(std::uint16_t, void*)>("rte_eth_stats_get")(id_, statistics.data());
        return statistics[1];
    }

private:
    std::uint16_t id_ = 0;
};

std::atomic<bool> stopped;

// What it interrupts is not run for longer than an answer is awaited, as in a process that is stopped.
void stop_for_long(int) {
    const timespec long_enough{.tv_sec = 0, .tv_nsec = 700'000'000};
    nanosleep(&long_enough, nullptr);
    stopped = true;
}

}  // namespace

TEST_CASE("dpdk: an address is asked for to the end, however long that takes") {
    NEEDS_DPDK;
    for (const bool v6 : {false, true}) {
        CAPTURE(v6);
        const Plugged port;
        struct sigaction before = {}, action = {};
        action.sa_handler = stop_for_long;
        action.sa_flags = SA_RESTART;
        REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
        stopped = false;
        std::unique_ptr<Io> io;
        std::atomic<bool> open{false};
        const std::uint64_t sent_before = port.sent_frames();
        std::thread opener([&] {
            io = std::make_unique<Io>(
                Settings{.host = v6 ? "fd08::1/64" : "10.8.0.1/24", .words = std::string("port=") + device});
            open = true;
            while (!stopped) std::this_thread::yield();  // it must be there to be interrupted
        });
        while (!open && port.sent_frames() == sent_before) std::this_thread::yield();
        pthread_kill(opener.native_handle(), SIGUSR1);
        opener.join();
        sigaction(SIGUSR1, &before, nullptr);
        REQUIRE(io != nullptr);
        // All three times, and so it is not asked for any more.
        CHECK(io->statistic("tx_address_probe_frames") == 3);
        CHECK_FALSE(has_told(*io, DLCP_IO_ADDRESS_TAKEN));
    }
}

// What the dpdk driver does when its device is taken away, is reset or mends itself. DPDK's own functions raise the
// events that the driver of a card raises, on a virtual device that leads nowhere.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dpdk_ports.hpp"

namespace {

using namespace dlcp::test;

// Of rte_ethdev.h, whose header the tests do without: enum rte_eth_event_type.
constexpr int intr_reset = 3, intr_rmv = 6, err_recovering = 12, recovery_success = 13, recovery_failed = 14;

void raise_event(const std::string& name, int event) {
    void* const device = function_of_dpdk<void*(const char*)>("rte_eth_dev_allocated")(name.c_str());
    REQUIRE(device != nullptr);
    function_of_dpdk<int(void*, int, void*)>("rte_eth_dev_callback_process")(device, event, nullptr);
}

// A net_null device that is plugged in for a test: takes everything, gives nothing.
class HotDevice {
public:
    explicit HotDevice(const std::string& name) : name_(name) {
        refusal({.words = "port=absent"});  // starts DPDK, as every test does
        REQUIRE(function_of_dpdk<int(const char*, const char*, const char*)>("rte_eal_hotplug_add")(
                    "vdev", name_.c_str(), "no-rx=1") == 0);
    }
    ~HotDevice() { unplug(); }
    HotDevice(const HotDevice&) = delete;
    HotDevice& operator=(const HotDevice&) = delete;

    void unplug() {
        function_of_dpdk<int(const char*, const char*)>("rte_eal_hotplug_remove")("vdev", name_.c_str());
    }
    // As its driver would.
    void raise(int event) const { raise_event(name_, event); }
    Settings settings() const {
        return {.host = "10.8.0.1/24", .words = "port=" + name_ + " neighbour=10.8.0.2@02:00:00:00:00:02"};
    }

private:
    std::string name_;
};

// What the driver tells once it tells anything.
std::vector<dlcp_io_event> await_events(const OpenDriver& io) {
    const auto limit = std::chrono::steady_clock::now() + patience;
    std::vector<dlcp_io_event> events = io.events();
    while (events.empty()) {
        REQUIRE(std::chrono::steady_clock::now() < limit);
        dpdk.wait(io, 10'000'000);
        events = io.events();
    }
    return events;
}

// A device that takes all sends; one that is gone is not touched, and what it is given is lost and counted.
void check_sends(const OpenDriver& io, const dlcp_address& to, bool sends) {
    const dlcp_io_counters before = io.counters();
    const std::uint64_t calls = before.tx_calls + before.rx_calls;
    CHECK(io.send(to, {{.head = "packet"}, {.head = "packet"}}) == (sends ? 2 : 0));
    CHECK(io.receive().empty());
    const dlcp_io_counters after = io.counters();
    CHECK(after.tx_packets - before.tx_packets == (sends ? 2 : 0));
    CHECK(after.tx_dropped_packets - before.tx_dropped_packets == (sends ? 0 : 2));
    CHECK((after.tx_calls + after.rx_calls > calls) == sends);
}

}  // namespace

TEST_CASE("dpdk: a device that is gone is told, named, and not touched again") {
    NEEDS_DPDK;
    struct Loss {
        int event;
        const char* words;
        bool opens_again;  // the device is still there
    };
    for (const Loss& loss :
         {Loss{intr_rmv, "was taken away", false}, Loss{intr_reset, "was reset by its physical function", true},
          Loss{recovery_failed, "could not mend an error", false}}) {
        CAPTURE(loss.event);
        HotDevice device("net_null8");
        {
            const Io io(device.settings());
            const dlcp_address to = io.resolve("10.8.0.2:7000");
            io.events();
            check_sends(io, to, true);
            device.raise(loss.event);
            check_sends(io, to, false);  // at once, before it was told
            const std::vector<dlcp_io_event> events = await_events(io);
            REQUIRE(events.size() == 1);
            CHECK(events[0].kind == DLCP_IO_DEVICE_GONE);
            CHECK(contains(events[0].text, "net_null8"));
            CHECK(contains(events[0].text, loss.words));
            check_sends(io, to, false);
            // What a driver tells afterwards brings nothing back, and is not told.
            device.raise(recovery_success);
            check_sends(io, to, false);
            // An endpoint waits as ever: its other peers may be reached by other ports.
            const auto start = std::chrono::steady_clock::now();
            dpdk.wait(io, 120'000'000);
            CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(120));
            CHECK(io.events().empty());
            CHECK(io.counters().rx_dropped_datagrams == 0);
            CHECK(!io.statistics().empty());
        }
        if (loss.opens_again) {
            const Io again(device.settings());
            check_sends(again, again.resolve("10.8.0.2:7000"), true);
        } else {
            CHECK(refusal(device.settings()).result == -ENODEV);
        }
    }
}

TEST_CASE("dpdk: a device that mends itself has no link meanwhile, and has one again") {
    NEEDS_DPDK;
    HotDevice device("net_null8");
    const Io io(device.settings());
    const dlcp_address to = io.resolve("10.8.0.2:7000");
    io.events();
    for (int time = 0; time < 2; ++time) {
        device.raise(err_recovering);
        device.raise(err_recovering);  // a larger error on the way is told once more
        check_sends(io, to, false);
        const std::vector<dlcp_io_event> down = await_events(io);
        REQUIRE(down.size() == 1);
        CHECK(down[0].kind == DLCP_IO_LINK_DOWN);
        CHECK(contains(down[0].text, "net_null8"));
        CHECK(contains(down[0].text, "mends an error"));
        device.raise(recovery_success);
        const std::vector<dlcp_io_event> up = await_events(io);
        REQUIRE(up.size() == 1);
        CHECK(up[0].kind == DLCP_IO_LINK_UP);
        check_sends(io, to, true);
    }
}

TEST_CASE("dpdk: a device that has mended itself between two looks hears its groups again") {
    NEEDS_DPDK;
    constexpr const char* name = "net_ring8";  // filters no groups, and has a switch for all of them
    refusal({.words = "port=absent"});
    REQUIRE(function_of_dpdk<int(const char*, const char*, const char*)>("rte_eal_hotplug_add")("vdev", name,
                                                                                                "") == 0);
    {
        const Io io({.host = "fd08::1/64", .words = std::string("address_probe=off port=") + name});
        std::uint16_t id = 0;
        REQUIRE(function_of_dpdk<int(const char*, std::uint16_t*)>("rte_eth_dev_get_port_by_name")(name, &id) ==
                0);
        const auto hears_all = function_of_dpdk<int(std::uint16_t)>("rte_eth_allmulticast_get");
        REQUIRE(hears_all(id) == 1);
        for (int time = 0; time < 2; ++time) {
            // As a reset of the device does; what is lost is had again, though nobody saw it mend itself.
            REQUIRE(function_of_dpdk<int(std::uint16_t)>("rte_eth_allmulticast_disable")(id) == 0);
            raise_event(name, err_recovering);
            raise_event(name, recovery_success);
            const auto limit = std::chrono::steady_clock::now() + patience;
            while (hears_all(id) != 1) {
                REQUIRE(std::chrono::steady_clock::now() < limit);
                dpdk.wait(io, 10'000'000);
            }
            CHECK_FALSE(has_told(io, DLCP_IO_LINK_DOWN));
        }
        // What it has sent lies in its ring, and would be lost with it.
        std::array<std::uint64_t, 512> statistics{};  // rte_eth_stats and more: ipackets, opackets, …
        do {
            io.receive();
            function_of_dpdk<int(std::uint16_t, void*)>("rte_eth_stats_get")(id, statistics.data());
        } while (statistics[0] < statistics[1]);
    }
    function_of_dpdk<int(const char*, const char*)>("rte_eal_hotplug_remove")("vdev", name);
}

TEST_CASE("dpdk: a device that somebody unplugs in the middle of it is told, and closing is as ever") {
    NEEDS_DPDK;
    HotDevice device("net_null8");
    {
        const Io io(device.settings());
        const dlcp_address to = io.resolve("10.8.0.2:7000");
        io.events();
        check_sends(io, to, true);
        device.unplug();
        check_sends(io, to, false);
        const std::vector<dlcp_io_event> events = await_events(io);
        REQUIRE(events.size() == 1);
        CHECK(events[0].kind == DLCP_IO_DEVICE_GONE);
        CHECK(!io.statistics().empty());
    }
    CHECK(refusal(device.settings()).result == -ENODEV);
    HotDevice again("net_null8");
    const Io io(again.settings());
    check_sends(io, io.resolve("10.8.0.2:7000"), true);
}

TEST_CASE("dpdk: a device that was connected anew is watched still") {
    NEEDS_DPDK;
    const Io client(at(9, "", "10.9.0.2/24"));
    // Alone, a memif client is stopped and started every second.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
    while (std::chrono::steady_clock::now() < limit) dpdk.wait(client, 50'000'000);
    client.events();
    raise_event("net_memif9", intr_reset);
    const std::vector<dlcp_io_event> events = await_events(client);
    CHECK(events[0].kind == DLCP_IO_DEVICE_GONE);
}

TEST_CASE("dpdk: a port closes though DPDK's interrupt thread hangs") {
    NEEDS_DPDK;
    static std::atomic<bool> blocked{false}, released{false};
    blocked = released = false;
    auto io = std::make_unique<Io>(at(8));
    // Ports of memif are stopped on that thread; alarms are served there (rte_alarm.h).
    const auto set_alarm = function_of_dpdk<int(std::uint64_t, void (*)(void*), void*)>("rte_eal_alarm_set");
    REQUIRE(set_alarm(
                1,
                [](void*) {
                    blocked = true;
                    while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                },
                nullptr) == 0);
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (!blocked) {
        REQUIRE(std::chrono::steady_clock::now() < limit);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    io.reset();  // without a bound, not before the thread is let go, which is below
    released = true;
    const Io again(at(8));
}

// What tests of the dpdk driver share: DPDK's virtual devices, all in this process, and drivers over them. Pairs of memif
// ports are joined by shared memory. No card, no privilege. What is sent is in the receiver's ring when the sending call
// returns; what neighbours say to each other first takes a few turns of both.
//
// DPDK starts once per process, so all devices of all tests are named when the first one starts it.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/driver_registry.hpp"
#include "io/io_table.h"
#include "native/io/driver_checks.hpp"
#include "support/native/open_driver.hpp"

namespace dlcp::test {

// Built beside this program, where DPDK is found.
inline std::string plugin_path() {
    std::error_code error;
    const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
    return error ? std::string{} : (own.parent_path() / "libdlcp_io_dpdk.so").string();
}

// nullptr where there is no plugin; says so.
inline const dlcp_io_table* find_dpdk() {
    static const dlcp_io_table* const table = []() -> const dlcp_io_table* {
        const std::string path = plugin_path();
        if (!std::filesystem::exists(path)) return nullptr;
        return &dlcp::find_driver(path);
    }();
    if (table == nullptr)
        MESSAGE("skipped: no " << plugin_path() << " (DPDK's headers were not there to build it)");
    return table;
}

#define NEEDS_DPDK \
    if (find_dpdk() == nullptr) return
#define dpdk (*find_dpdk())

// Ports 2n and 2n + 1 are the two ends of a pair.
inline const std::string& eal_arguments() {
    static const std::string arguments = [] {
        const std::string socket = "/tmp/dlcp_test_" + std::to_string(getpid()) + ".memif";
        std::string text = "--no-huge -m 512 --no-pci";
        for (int number = 0; number < 10; ++number) {
            text += " --vdev=net_memif" + std::to_string(number) +
                    ",role=" + (number % 2 == 0 ? "server" : "client") + ",id=" + std::to_string(number / 2) +
                    ",socket-abstract=yes,socket=" + socket;
            if (number / 2 == 1) text += ",bsize=9216";
            if (number / 2 == 3) text += ",rsize=8";
        }
        return text + " --vdev=net_null0";
    }();
    return arguments;
}

struct Settings {
    std::string host = "10.9.0.1/24";
    std::string words = "port=net_memif0";
    std::uint16_t paths = 1;
    std::uint16_t port = 0;
    std::uint32_t max_datagram_bytes = 0;
    std::string interface_name = {};
    std::uint32_t flags = 0;
};

// What `function` makes of a configuration, whose words last no longer than the call.
template <typename Function>
auto with_config(const Settings& settings, const Function& function) {
    const std::string extra = settings.words + " -- " + eal_arguments();
    dlcp_io_config config = {};
    config.bind_host = settings.host.c_str();
    config.paths = settings.paths;
    config.port = settings.port;
    config.max_datagram_bytes = settings.max_datagram_bytes;
    config.flags = settings.flags;
    config.interface_name = settings.interface_name.empty() ? nullptr : settings.interface_name.c_str();
    config.extra = extra.c_str();
    return function(config);
}

inline OpenFailure refusal(const Settings& settings) {
    return with_config(settings, [](const dlcp_io_config& config) { return open_failure(dpdk, config); });
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

class Io : public OpenDriver {
public:
    explicit Io(const Settings& settings)
        : OpenDriver(
              with_config(settings, [](const dlcp_io_config& config) { return OpenDriver(dpdk, config); })) {}

    // Of all ports, by the end of the name.
    std::uint64_t statistic(const std::string& end) const {
        std::uint64_t sum = 0;
        bool found = false;
        for (const auto& [name, value] : statistics()) {
            if (!name.ends_with(end)) continue;
            sum += value;
            found = true;
        }
        CHECK_MESSAGE(found, end);
        return sum;
    }
};

// A function of the DPDK that the plugin has loaded.
template <typename Function>
Function* function_of_dpdk(const char* name) {
    void* const plugin = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(plugin != nullptr);
    void* const symbol = dlsym(plugin, name);
    dlclose(plugin);
    REQUIRE_MESSAGE(symbol != nullptr, name);
    return reinterpret_cast<Function*>(symbol);
}

// All of it, a burst at a time.
inline int send_all(const Io& io, const dlcp_address& to, const std::vector<Outgoing>& outgoing) {
    const std::size_t burst = io.capabilities().max_burst_packets;
    int sent = 0;
    for (std::size_t i = 0; i < outgoing.size(); i += burst)
        sent += io.send(to, std::span(outgoing).subspan(i, std::min(burst, outgoing.size() - i)));
    return sent;
}

// Whether a device can be given segments is found out once it has a link.
inline void wait_until_gathering(const Io& from, const dlcp_address& to, const Io& at) {
    const Outgoing packet = {.head = "h", .body = std::string(1000, 'x')};
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (from.statistic("tx_gathered_packets") == 0) {
        REQUIRE(std::chrono::steady_clock::now() < limit);
        dpdk.wait(from, 1'000'000);
        from.send(to, {packet});
        at.receive();
    }
}

// Takes what it has told so far.
inline bool has_told(const Io& io, std::uint32_t kind) {
    const auto events = io.events();
    return std::any_of(events.begin(), events.end(),
                       [kind](const dlcp_io_event& event) { return event.kind == kind; });
}

inline void await_event(const Io& io, std::uint32_t kind, const Io& peer) {
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (!has_told(io, kind)) {
        REQUIRE(std::chrono::steady_clock::now() < limit);
        dpdk.wait(io, 10'000'000);
        dpdk.wait(peer, 0);
    }
}

// A memif connection is made by DPDK's own thread, at its pace, and what is sent before is lost: tries until each end
// has heard the other, on every path. Returns the address of `b` for `a`.
inline dlcp_address join(const Io& a, const Io& b, std::uint16_t paths = 1) {
    const auto limit = std::chrono::steady_clock::now() + patience;
    const dlcp_address to = a.resolve(b.text());
    const auto hear = [&](const Io& from, const Io& at) {
        const dlcp_address address = from.resolve(at.text());
        std::uint64_t hellos = 0;
        std::set<std::string> sources;
        while (sources.size() < paths) {
            REQUIRE(std::chrono::steady_clock::now() < limit);
            for (std::uint16_t path = 0; path < paths; ++path, ++hellos)
                from.send(address, {{.head = "hello", .path = path}});
            for (int turn = 0; turn < 200 && sources.size() < paths; ++turn) {
                dpdk.wait(from, 50'000);
                dpdk.wait(at, 50'000);
                from.receive();
                for (const Incoming& packet : at.receive()) sources.insert(at.text_of(packet.source));
            }
        }
        // None is still on its way.
        for (dlcp_io_counters sent = from.counters();
             sent.tx_packets + sent.tx_dropped_packets < hellos || at.counters().rx_packets < sent.tx_packets;
             sent = from.counters()) {
            REQUIRE(std::chrono::steady_clock::now() < limit);
            from.receive();
            at.receive();
        }
    };
    hear(a, b);
    hear(b, a);
    for (const Io* io : {&a, &b}) {
        io->receive();  // what it found when it looked for its neighbour's answer
        io->events();   // a link is an event, and ends a wait
    }
    return to;
}

inline Settings at(int number, const std::string& words = "", const std::string& host = "",
                   std::uint16_t paths = 1) {
    Settings settings;
    settings.words = "port=net_memif" + std::to_string(number) + (words.empty() ? "" : " " + words);
    settings.host = host.empty() ? "10.9.0." + std::to_string(number + 1) + "/24" : host;
    settings.paths = paths;
    return settings;
}

}  // namespace dlcp::test

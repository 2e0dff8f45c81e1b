// A driver that does what a test sets, and counts what it was asked for: without packets, on a clock of its own.
#pragma once

#include <functional>
#include <string>

#include "collective/executor.hpp"
#include "engine/endpoint.hpp"
#include "io/driver_handle.hpp"
#include "io/driver_table.hpp"
#include "io/engine_pump.hpp"

namespace dlcp::test {

struct ScriptedDriver {
    static int open(const dlcp_io_config&, std::unique_ptr<ScriptedDriver>& out, ErrorText) {
        out = std::make_unique<ScriptedDriver>();
        return 0;
    }
    dlcp_io_capabilities capabilities() const { return {.max_datagram_bytes = 1472, .max_burst_packets = 4}; }
    int resolve(const char*, dlcp_address&, ErrorText error) { return error.fail(EINVAL, "nobody is there"); }
    std::string format(const dlcp_address&) const { return "nowhere"; }
    dlcp_address local_address() const { return {.length = 1}; }
    int tx_get(dlcp_packet* packets, int count) {
        const int lent = count < buffers ? count : buffers;
        for (int i = 0; i < lent; ++i) packets[i] = {.head = heads[i]};
        return lent;
    }
    int tx_put(dlcp_packet* packets, int count) {
        for (int i = 0; i < count; ++i)
            if (packets[i].head_bytes != 0) sent_to.push_back(packets[i].address);
        return count;
    }
    int rx(dlcp_packet*, int) {
        ++receives;
        return 0;
    }
    void rx_done(dlcp_packet*, int) {}
    void wait(std::int64_t timeout_ns) {
        waits.push_back(timeout_ns);
        if (in_wait) in_wait();
    }
    void wake() { ++wakes; }
    std::int64_t now_ns() const { return clock_ns + (ticked_ns += tick_ns); }
    dlcp_io_counters counters() const { return {}; }
    const std::string& warnings() const { return none; }

    std::int64_t clock_ns = 1'000'000;
    std::int64_t tick_ns = 0;  // by which the clock goes on at each look
    mutable std::int64_t ticked_ns = 0;
    int buffers = 4;  // that it lends at once
    int receives = 0;
    int wakes = 0;
    std::vector<std::int64_t> waits;           // timeouts in nanoseconds; negative: none
    std::vector<const dlcp_address*> sent_to;  // by packet
    std::function<void()> in_wait;
    std::uint8_t heads[4][DLCP_HEAD_CAPACITY];
    std::string none;
};

inline constexpr dlcp_io_table scripted_table = driver_table<ScriptedDriver>("scripted");

// A pump over an engine and a scripted driver.
struct ScriptedPump {
    ScriptedPump() {
        pump.open(scripted_table, reinterpret_cast<dlcp_io*>(&driver), 4);
        pump.set_engine(engine, executor);
    }
    ScriptedDriver driver;
    Endpoint engine{EndpointConfig{}, 1, Time{1'000'000}};
    CollectiveExecutor executor{engine};
    EnginePump pump;
    std::mutex mutex;
};

}  // namespace dlcp::test

// What every driver of packets keeps to (io/io_table.h), checked over ones that a test has opened.
#pragma once

#include <doctest/doctest.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/native/open_driver.hpp"

namespace dlcp::test {

// Ends what would hang; far above what anything here takes on a busy machine.
inline constexpr std::chrono::seconds patience{60};

// The thread that made it, as another one sees it: whether it sleeps in the kernel or works.
class WatchedThread {
public:
    WatchedThread() : id_(gettid()) { pthread_getcpuclockid(pthread_self(), &clock_); }

    // Another thread's call: until it sleeps, whatever it slept in before. False: not within `patience`.
    bool await_sleep() const {
        return await([&] { return state() == 'S'; });
    }
    // Another thread's call: until it sleeps, or has worked for a millisecond from now on, as one that polls does.
    bool await_sleep_or_work() const {
        const std::int64_t start_ns = worked_ns();
        return await([&] { return state() == 'S' || worked_ns() - start_ns > 1'000'000; });
    }

private:
    static bool await(const std::function<bool()>& reached) {
        const auto limit = std::chrono::steady_clock::now() + patience;
        while (!reached()) {
            if (std::chrono::steady_clock::now() > limit) return false;
            std::this_thread::yield();
        }
        return true;
    }
    // proc(5): what follows the name, which is in brackets and may hold any.
    char state() const {
        std::ifstream file("/proc/self/task/" + std::to_string(id_) + "/stat");
        std::string line;
        std::getline(file, line);
        const std::size_t name_end = line.rfind(") ");
        return name_end == std::string::npos ? '?' : line[name_end + 2];
    }
    std::int64_t worked_ns() const {
        timespec spent = {};
        clock_gettime(clock_, &spent);
        return spent.tv_sec * 1'000'000'000 + spent.tv_nsec;
    }

    pid_t id_;
    clockid_t clock_ = {};
};

// Everything sent in `outgoing` arrived with its TOS. In order, if they share a socket or a queue.
inline void check_arrived(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming,
                          bool ordered = true) {
    REQUIRE(incoming.size() == outgoing.size());
    CHECK(contents(incoming, ordered) == contents(outgoing, ordered));
}

// `b`, which `a` reaches as `to`, answers to where packets came from, out of the buffers they came in.
inline void check_echo(const OpenDriver& a, const OpenDriver& b, const dlcp_address& to,
                       std::vector<Outgoing> outgoing) {
    const dlcp_io_table& table = b.table();
    for (Outgoing& packet : outgoing) packet.flags = DLCP_PACKET_ANSWERED;
    a.send(to, outgoing);
    dlcp_packet received[64];
    const int count = table.rx(b, received, 64);
    REQUIRE(count == static_cast<int>(outgoing.size()));
    dlcp_packet replies[64];
    REQUIRE(table.tx_get(b, replies, count) == count);
    for (int i = 0; i < count; ++i) {
        memcpy(replies[i].head, received[i].head, 8);
        replies[i].head_bytes = 8;
        replies[i].body = received[i].head + 8;  // a body in the driver's own receive buffer
        replies[i].body_bytes = received[i].head_bytes - 8;
        replies[i].address = received[i].address;
    }
    CHECK(table.tx_put(b, replies, count) == count);
    table.rx_done(b, received, count);
    check_arrived(outgoing, a.receive());
}

// A wait with nothing to end it lasts as long as it may. One that news ended, such as of a link that came up just now,
// is begun again.
inline bool wait_lasts(const OpenDriver& io, std::int64_t timeout_ns) {
    const dlcp_io_table& table = io.table();
    for (;;) {
        const std::int64_t start_ns = table.now_ns(io);
        table.wait(io, timeout_ns);
        if (table.now_ns(io) - start_ns >= timeout_ns) return true;
        if (io.events().empty()) return false;
    }
}

// What comes next; empty where the wait ended by what is neither packets nor news.
inline std::vector<Incoming> wait_and_receive(const OpenDriver& io) {
    for (;;) {
        io.table().wait(io, -1);
        std::vector<Incoming> incoming = io.receive();
        if (!incoming.empty() || io.events().empty()) return incoming;
    }
}

// wait() ends by timeout, by wake() and by a packet from `other`, which reaches `io` as `to`.
inline void check_wait(const OpenDriver& io, const OpenDriver& other, const dlcp_address& to) {
    const dlcp_io_table& table = io.table();
    CHECK(wait_lasts(io, 2'000'000));
    table.wait(io, 0);

    table.wake(io);
    table.wait(io, -1);  // a wake before the wait is not lost
    table.wake(io);
    table.wake(io);
    table.wait(io, -1);
    CHECK(wait_lasts(io, 2'000'000));  // two wakes before one wait are one

    other.send(to, {{.head = "a"}, {.head = "bb"}});
    table.wait(io, -1);
    dlcp_packet packet;
    CHECK(table.rx(io, &packet, 1) == 1);
    table.rx_done(io, &packet, 1);
    table.wait(io, -1);  // one more is already here
    CHECK(io.receive().size() == 1);
}

// Wakes from another thread, which does `after` each: a lost one would leave this waiting for ever.
inline void check_every_wake(const OpenDriver& io, const std::function<void(int round)>& after = {}) {
    std::atomic<int> commands{0};
    constexpr int rounds = 2000;
    std::thread waker([&] {
        for (int i = 0; i < rounds; ++i) {
            commands.fetch_add(1, std::memory_order_relaxed);
            io.table().wake(io);
            if (after) after(i);
        }
    });
    while (commands.load(std::memory_order_relaxed) < rounds) io.table().wait(io, -1);
    waker.join();
}

// Without a driver the functions answer, and do nothing.
inline void check_closed(const dlcp_io_table& table) {
    dlcp_packet packet = {};
    dlcp_address address;
    dlcp_io_capabilities capabilities;
    dlcp_io_counters counters;
    char text[128];
    CHECK(table.tx_get(nullptr, &packet, 1) == 0);
    CHECK(table.tx_put(nullptr, &packet, 1) == 0);
    CHECK(table.rx(nullptr, &packet, 1) == 0);
    table.rx_done(nullptr, &packet, 1);
    table.wait(nullptr, -1);
    table.wake(nullptr);
    table.local_address(nullptr, &address);
    CHECK(address.length == 0);
    table.capabilities(nullptr, &capabilities);
    CHECK(capabilities.max_burst_packets == 0);
    table.counters(nullptr, &counters);
    CHECK(counters.tx_packets == 0);
    CHECK(std::string(table.warnings(nullptr)) == "");
    CHECK(table.resolve(nullptr, "127.0.0.1:1", &address, text, sizeof text) == -EBADF);
    table.close(nullptr);
}

}  // namespace dlcp::test

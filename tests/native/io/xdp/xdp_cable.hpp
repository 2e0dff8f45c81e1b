// What tests of the xdp driver share: two network namespaces joined by a veth, and drivers in them, of which one may be
// over the kernel's sockets.
//
// Needs root, iproute2 and the plugin beside this program; else every case says why it is skipped. A driver stays in
// the namespace where it was opened, so only that runs in a thread of its own; the rest calls from here. On a veth a
// frame may arrive a moment after the call that sent it, so tests wait for what they expect.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "io/clock.hpp"
#include "io/driver_registry.hpp"
#include "io/udp_driver.hpp"
#include "support/native/open_driver.hpp"

namespace dlcp::test {

// No wait is this long but on a machine that is busy with other things.
constexpr std::int64_t patience_ns = 20'000'000'000;

inline bool shell(const std::string& command) {
    return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
}

inline const dlcp_io_table* find_xdp(std::string& why_not) {
    try {
        return &find_driver("xdp");
    } catch (const std::exception& error) {
        why_not = error.what();
        return nullptr;
    }
}

// nullptr, having said why, where the tests cannot run.
inline const dlcp_io_table* xdp_or_skip() {
    std::string why_not;
    const dlcp_io_table* table = nullptr;
    if (geteuid() != 0)
        why_not = "network namespaces need root";
    else if (!shell("ip -V"))
        why_not = "network namespaces need ip (Debian: iproute2)";
    else
        table = find_xdp(why_not);
    if (table == nullptr) MESSAGE("skipped: " << why_not);
    return table;
}

// Asks `done` again and again; false: it did not come about.
inline bool wait_until(const std::function<bool()>& done) {
    for (const std::int64_t until_ns = monotonic_ns() + patience_ns; monotonic_ns() < until_ns;)
        if (done()) return true;
    return done();
}

// Two namespaces, each with an interface "eth0" at the ends of a veth: 10.7.0.1 and fd07::1 of the one kernel, 10.7.0.2
// and fd07::2 of the other.
class Cable {
public:
    explicit Cable(unsigned queues = 1, unsigned mtu_bytes = 1500) {
        static unsigned serial = 0;
        for (unsigned end = 0; end < 2; ++end) {
            names_[end] = "dlcp-" + std::to_string(getpid()) + "-x" + std::to_string(serial++);
            REQUIRE(shell("ip netns add " + names_[end]));
        }
        const std::string size = " mtu " + std::to_string(mtu_bytes) + " numrxqueues " + std::to_string(queues) +
                                 " numtxqueues " + std::to_string(queues);
        REQUIRE(shell("ip -n " + names_[0] + " link add eth0" + size + " type veth peer name eth0" + size +
                      " netns " + names_[1]));
        for (unsigned end = 0; end < 2; ++end) {
            const std::string host = std::to_string(end + 1);
            ip(end, "link set eth0 addrgenmode none up");
            ip(end, "link set lo up");
            ip(end, "address add 10.7.0." + host + "/24 dev eth0");
            ip(end, "address add fd07::" + host + "/64 dev eth0 nodad");
        }
        for (unsigned end = 0; end < 2; ++end) REQUIRE(wait_until([&] { return is_up(end); }));
    }
    ~Cable() {
        for (const std::string& name : names_) shell("ip netns delete " + name);
    }
    Cable(const Cable&) = delete;
    Cable& operator=(const Cable&) = delete;

    void ip(unsigned end, const std::string& words) { REQUIRE(shell("ip -n " + names_[end] + " " + words)); }
    void command(unsigned end, const std::string& words) {
        REQUIRE(shell("ip netns exec " + names_[end] + " " + words));
    }
    bool has_program(unsigned end) {
        return shell("ip -n " + names_[end] + " -d link show dev eth0 | grep -q xdp");
    }
    // The kernel says so a moment after the other end was switched on.
    bool is_up(unsigned end) { return shell("ip -n " + names_[end] + " link show dev eth0 | grep -q 'state UP'"); }
    bool is_member(unsigned end, const std::string& group) {
        return shell("ip -n " + names_[end] + " -6 maddr show dev eth0 | grep -q " + group);
    }
    // In a thread that is in that namespace; what is thrown there is thrown here.
    void run(unsigned end, const std::function<void()>& function) {
        std::async(std::launch::async, [&] {
            enter(end);
            function();
        }).get();
    }
    // What eth0 has got, as its driver counts when it is done with them.
    std::uint64_t received_frames(unsigned end) {
        std::uint64_t out = 0;
        run(end, [&] {
            std::ifstream file("/proc/thread-self/net/dev");
            for (std::string line; std::getline(file, line);) {
                const std::size_t colon = line.find("eth0:");
                if (colon != std::string::npos)
                    REQUIRE(std::sscanf(&line[colon], "eth0: %*u %" SCNu64, &out) == 1);
            }
        });
        return out;
    }
    void enter(unsigned end) {
        const int descriptor = open(("/run/netns/" + names_[end]).c_str(), O_RDONLY | O_CLOEXEC);
        if (setns(descriptor, CLONE_NEWNET) != 0) abort();  // else a test would use this host's own network
        close(descriptor);
    }

private:
    std::string names_[2];
};

struct Setup {
    std::string host;
    std::string extra = {};
    std::uint16_t port = 0;
    std::uint16_t paths = 1;
    std::string interface = "eth0";
    std::uint32_t max_datagram_bytes = 0;
    std::uint32_t flags = 0;

    dlcp_io_config config(bool udp) const {
        dlcp_io_config out = {};
        out.bind_host = host.c_str();
        out.interface_name = udp || interface.empty() ? nullptr : interface.c_str();
        out.extra = extra.c_str();
        out.port = port;
        out.paths = paths;
        out.max_datagram_bytes = max_datagram_bytes;
        out.flags = flags;
        return out;
    }
};

inline OpenDriver open_at(const dlcp_io_table& table, Cable& cable, unsigned end, const Setup& setup) {
    std::optional<OpenDriver> out;
    cable.run(end, [&] { out.emplace(table, setup.config(&table == dlcp_udp_driver())); });
    return std::move(*out);
}

// An open driver at one end of a cable.
class Station : public OpenDriver {
public:
    Station(const dlcp_io_table& table, Cable& cable, unsigned end, const Setup& setup)
        : OpenDriver(open_at(table, cable, end, setup)) {}

    std::vector<std::uint32_t> take_events() {
        std::vector<std::uint32_t> out;
        for (const dlcp_io_event& event : events()) out.push_back(event.kind);
        return out;
    }
};

// Has both ends do their work (answer who asks for them) until `done`; false: it did not come about.
inline bool work_until(Station& one, Station& other, const std::function<bool()>& done) {
    return wait_until([&] {
        if (done()) return true;
        one.table().wait(one, 1'000'000);
        other.table().wait(other, 1'000'000);
        return false;
    });
}

// `count` packets that arrive at `to`, while `from` does its work.
inline std::vector<Incoming> receive(Station& from, Station& to, std::size_t count) {
    std::vector<Incoming> out;
    work_until(from, to, [&] {
        CHECK(from.receive().empty());
        for (Incoming& packet : to.receive()) out.push_back(std::move(packet));
        return out.size() >= count;
    });
    return out;
}

// Full packets but the last, which is of odd length where half of a full one is even. Peers may answer to their source.
inline std::vector<Outgoing> make_run(unsigned count, std::size_t datagram_bytes, std::uint8_t tos) {
    std::vector<Outgoing> out = dlcp::test::make_run(0, count, datagram_bytes - 80, 0, tos);
    out.back().body.resize(datagram_bytes / 2 + 1 - 80);
    for (Outgoing& packet : out) packet.flags = DLCP_PACKET_ANSWERED;
    return out;
}

inline void exchange(Station& from, Station& to) {
    const std::uint32_t bytes =
        std::min(from.capabilities().max_datagram_bytes, to.capabilities().max_datagram_bytes);
    for (const std::uint8_t tos : {0x00, 0x2a, 0x03}) {  // nothing; AF11 and ECT(0); congestion experienced
        const std::vector<Outgoing> run = make_run(16, bytes, tos);
        REQUIRE(from.send(to.address(), run) == 16);
        const std::vector<Incoming> arrived = receive(from, to, run.size());
        REQUIRE(arrived.size() == run.size());
        for (std::size_t i = 0; i < run.size(); ++i) {
            CHECK(arrived[i].datagram == run[i].datagram());
            CHECK(arrived[i].tos == tos);
            CHECK(to.text_of(arrived[i].source) == from.text());
        }
    }
    CHECK(to.counters().ce_packets == 16);
    CHECK(from.counters().tx_packets >= 48);
    CHECK(from.counters().tx_dropped_packets == 0);
}

inline OpenFailure refusal(const dlcp_io_table& table, Cable& cable, const Setup& setup) {
    OpenFailure out;
    cable.run(0, [&] { out = open_failure(table, setup.config(false)); });
    return out;
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace dlcp::test

// The xdp driver between two network namespaces joined by a veth: against itself and against the kernel's sockets.
//
// Needs root, iproute2 and the plugin beside this program; else every case says why it is skipped. A driver stays in
// the namespace where it was opened, so only that runs in a thread of its own; the rest calls from here. On a veth a
// frame may arrive a moment after the call that sent it, so tests wait for what they expect, for seconds at most.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "io/driver_registry.hpp"
#include "io/udp_clock.hpp"
#include "io/udp_driver.hpp"

namespace {

using dlcp::udp::monotonic_ns;

constexpr std::int64_t patience_ns = 5'000'000'000;

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

const dlcp_io_table* find_xdp(std::string& why_not) {
    try {
        return &dlcp::find_driver("xdp");
    } catch (const std::exception& error) {
        why_not = error.what();
        return nullptr;
    }
}

// nullptr, having said why, where the tests cannot run.
const dlcp_io_table* xdp_or_skip() {
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
    }
    ~Cable() {
        for (const std::string& name : names_) shell("ip netns delete " + name);
    }
    Cable(const Cable&) = delete;
    Cable& operator=(const Cable&) = delete;

    void ip(unsigned end, const std::string& words) { REQUIRE(shell("ip -n " + names_[end] + " " + words)); }
    bool has_program(unsigned end) {
        return shell("ip -n " + names_[end] + " -d link show dev eth0 | grep -q xdp");
    }
    // In a thread that is in that namespace.
    void run(unsigned end, const std::function<void()>& function) {
        std::thread([&] {
            enter(end);
            function();
        }).join();
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

struct Outgoing {
    std::string head, body, tail;
    std::uint16_t path = 0;
    std::uint8_t tos = 0;
    std::string datagram() const { return head + body + tail; }
};

struct Incoming {
    std::string datagram;
    std::uint8_t tos;
    std::string source;
};

// An open driver at one end of a cable.
class Station {
public:
    Station(const dlcp_io_table& table, Cable& cable, unsigned end, const Setup& setup) : table_(table) {
        int result = 0;
        char text[1024] = "";
        cable.run(end, [&] {
            const dlcp_io_config config = setup.config(&table == dlcp_udp_driver());
            result = table.open(&config, &io_, text, sizeof text);
        });
        INFO(std::string(text));
        REQUIRE(result == 0);
        table_.local_address(io_, &address_);
    }
    ~Station() { table_.close(io_); }
    Station(const Station&) = delete;
    Station& operator=(const Station&) = delete;

    const dlcp_io_table& table() const { return table_; }
    dlcp_io* io() const { return io_; }
    const dlcp_address& address() const { return address_; }
    std::string text() const { return text_of(address_); }
    std::string warnings() const { return table_.warnings(io_); }
    static std::string text_of(const dlcp_address& address) {
        char text[128];
        dlcp_udp_driver()->format(nullptr, &address, text, sizeof text);
        return text;
    }
    dlcp_io_counters counters() const {
        dlcp_io_counters out;
        table_.counters(io_, &out);
        return out;
    }
    dlcp_io_capabilities capabilities() const {
        dlcp_io_capabilities out;
        table_.capabilities(io_, &out);
        return out;
    }
    std::map<std::string, std::uint64_t> statistics() const {
        std::vector<dlcp_io_statistic> all(64);
        const int count = table_.statistics(io_, all.data(), static_cast<int>(all.size()));
        std::map<std::string, std::uint64_t> out;
        for (int i = 0; i < count; ++i)
            out[all[static_cast<std::size_t>(i)].name] = all[static_cast<std::size_t>(i)].value;
        return out;
    }
    std::vector<std::uint32_t> take_events() {
        dlcp_io_event events[16];
        std::vector<std::uint32_t> out;
        for (int i = 0, count = table_.events(io_, events, 16); i < count; ++i) out.push_back(events[i].kind);
        return out;
    }

    int send(const dlcp_address& to, const std::vector<Outgoing>& outgoing) {
        std::vector<dlcp_packet> packets(outgoing.size());
        REQUIRE(table_.tx_get(io_, packets.data(), static_cast<int>(packets.size())) ==
                static_cast<int>(packets.size()));
        for (std::size_t i = 0; i < packets.size(); ++i) {
            const Outgoing& from = outgoing[i];
            memcpy(packets[i].head, from.head.data(), from.head.size());
            memcpy(packets[i].head + from.head.size(), from.tail.data(), from.tail.size());
            packets[i].head_bytes = static_cast<std::uint32_t>(from.head.size());
            packets[i].tail_bytes = static_cast<std::uint32_t>(from.tail.size());
            packets[i].body = reinterpret_cast<const std::uint8_t*>(from.body.data());
            packets[i].body_bytes = static_cast<std::uint32_t>(from.body.size());
            packets[i].path = from.path;
            packets[i].tos = from.tos;
            packets[i].address = &to;
        }
        return table_.tx_put(io_, packets.data(), static_cast<int>(packets.size()));
    }

    // What can be read now.
    std::vector<Incoming> read() {
        std::vector<Incoming> out;
        dlcp_packet packets[64];
        while (const int count = table_.rx(io_, packets, 64)) {
            for (int i = 0; i < count; ++i) {
                out.push_back({std::string(reinterpret_cast<const char*>(packets[i].head), packets[i].head_bytes),
                               packets[i].tos, text_of(*packets[i].address)});
            }
            table_.rx_done(io_, packets, count);
        }
        return out;
    }

private:
    const dlcp_io_table& table_;
    dlcp_io* io_ = nullptr;
    dlcp_address address_ = {};
};

// Has both ends do their work (answer who asks for them) until `done`; false: it did not come about.
bool work_until(Station& one, Station& other, const std::function<bool()>& done) {
    for (const std::int64_t until_ns = monotonic_ns() + patience_ns; monotonic_ns() < until_ns;) {
        if (done()) return true;
        one.table().wait(one.io(), 1'000'000);
        other.table().wait(other.io(), 1'000'000);
    }
    return done();
}

// `count` packets that arrive at `to`, while `from` does its work.
std::vector<Incoming> receive(Station& from, Station& to, std::size_t count) {
    std::vector<Incoming> out;
    work_until(from, to, [&] {
        CHECK(from.read().empty());
        for (Incoming& packet : to.read()) out.push_back(std::move(packet));
        return out.size() >= count;
    });
    return out;
}

std::string pattern(std::size_t bytes, unsigned seed) {
    std::string out(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(seed * 31 + i * 7 + i / 251);
    return out;
}

// Full packets but the last.
std::vector<Outgoing> make_run(unsigned count, std::size_t datagram_bytes, std::uint16_t path, std::uint8_t tos) {
    std::vector<Outgoing> out;
    for (unsigned i = 0; i < count; ++i) {
        const std::size_t bytes = i + 1 < count ? datagram_bytes : datagram_bytes / 2 + 1;
        out.push_back({.head = pattern(64, i),
                       .body = pattern(bytes - 80, i + 1000),
                       .tail = pattern(16, i + 2000),
                       .path = path,
                       .tos = tos});
    }
    return out;
}

void exchange(Station& from, Station& to) {
    const std::uint32_t bytes =
        std::min(from.capabilities().max_datagram_bytes, to.capabilities().max_datagram_bytes);
    for (const std::uint8_t tos : {0x00, 0x2a, 0x03}) {  // nothing; AF11 and ECT(0); congestion experienced
        const std::vector<Outgoing> run = make_run(16, bytes, 0, tos);
        REQUIRE(from.send(to.address(), run) == 16);
        const std::vector<Incoming> arrived = receive(from, to, run.size());
        REQUIRE(arrived.size() == run.size());
        for (std::size_t i = 0; i < run.size(); ++i) {
            CHECK(arrived[i].datagram == run[i].datagram());
            CHECK(arrived[i].tos == tos);
            CHECK(arrived[i].source == from.text());
        }
    }
    CHECK(to.counters().ce_packets == 16);
    CHECK(from.counters().tx_packets >= 48);
    CHECK(from.counters().tx_dropped_packets == 0);
}

struct OpenFailure {
    int result;
    std::string text;
};

OpenFailure open_failure(const dlcp_io_table& table, Cable& cable, const Setup& setup) {
    int result = 0;
    char text[1024] = "";
    cable.run(0, [&] {
        dlcp_io* io = nullptr;
        const dlcp_io_config config = setup.config(false);
        result = table.open(&config, &io, text, sizeof text);
        if (io != nullptr) table.close(io);
    });
    return {result, text};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("xdp driver: runs arrive whole, with their TOS, in either mode and family") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    for (const std::string mode : {"mode=native", "mode=generic", "mode=auto zero_copy=off"}) {
        for (const bool v6 : {false, true}) {
            CAPTURE(mode);
            CAPTURE(v6);
            Cable cable;
            Station one(*xdp, cable, 0, {.host = v6 ? "fd07::11/64" : "10.7.0.11/24", .extra = mode});
            Station other(*xdp, cable, 1, {.host = v6 ? "fd07::12/64" : "10.7.0.12/24", .extra = mode});
            CHECK(one.statistics()["native_programs"] == (mode == "mode=generic" ? 0 : 1));
            CHECK(one.warnings() == "");
            exchange(one, other);
            exchange(other, one);
        }
    }
}

TEST_CASE("xdp driver: it and the kernel's sockets understand each other") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    for (const std::string extra : {"mode=native", "mode=native checksum=none", "mode=generic"}) {
        for (const bool v6 : {false, true}) {
            CAPTURE(extra);
            CAPTURE(v6);
            Cable cable;
            Station one(*xdp, cable, 0, {.host = v6 ? "fd07::11/64" : "10.7.0.11/24", .extra = extra});
            // The kernel of a veth hands a generic program its super-packets in one piece, which no chunk holds.
            const std::uint32_t flags = extra == "mode=generic" ? DLCP_IO_NO_GSO : 0;
            Station kernel(*dlcp_udp_driver(), cable, 1, {.host = v6 ? "fd07::2" : "10.7.0.2", .flags = flags});
            exchange(one, kernel);
            exchange(kernel, one);
            CHECK(one.statistics()["rx_bad_checksum_frames"] == 0);
        }
    }
}

TEST_CASE("xdp driver: every path has its source port, and is answered there") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24", .port = 7000, .paths = 4});
    Station kernel(*dlcp_udp_driver(), cable, 1, {.host = "10.7.0.2"});
    CHECK(one.text() == "10.7.0.11:7000");
    std::vector<Outgoing> packets;
    for (std::uint16_t path = 0; path < 6; ++path) packets.push_back({.head = "h", .path = path});
    one.send(kernel.address(), packets);
    std::multiset<std::string> sources;
    for (const Incoming& packet : receive(one, kernel, 6)) sources.insert(packet.source);
    CHECK(sources == std::multiset<std::string>{"10.7.0.11:7000", "10.7.0.11:7000", "10.7.0.11:7001",
                                                "10.7.0.11:7001", "10.7.0.11:7002", "10.7.0.11:7003"});
    for (const char* answered : {"10.7.0.11:7003", "10.7.0.11:7000"}) {
        dlcp_address to;
        char text[256];
        REQUIRE(dlcp_udp_driver()->resolve(kernel.io(), answered, &to, text, sizeof text) == 0);
        kernel.send(to, {{.head = answered}});
        const std::vector<Incoming> arrived = receive(kernel, one, 1);
        REQUIRE(arrived.size() == 1);
        CHECK(arrived[0].datagram == answered);
    }
}

TEST_CASE("xdp driver: frames are read from every queue") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable(4);
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    // Sockets on many ports, so that the kernel's hash has them leave by several queues.
    Station kernel(*dlcp_udp_driver(), cable, 1, {.host = "10.7.0.2", .paths = 32});
    CHECK(one.statistics()["queues"] == 4);
    std::vector<Outgoing> packets;
    for (std::uint16_t path = 0; path < 32; ++path) packets.push_back({.head = pattern(100, path), .path = path});
    kernel.send(one.address(), packets);
    CHECK(receive(kernel, one, 32).size() == 32);
    CHECK(contains(Station(*xdp, cable, 1, {.host = "10.7.0.12/24", .extra = "queues=2"}).warnings(),
                   "has 4 queues"));
}

TEST_CASE("xdp driver: the kernel keeps the interface") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24", .port = 7000});
    // The same port at the kernel's own address, on the same interface.
    Station kernel_here(*dlcp_udp_driver(), cable, 0, {.host = "10.7.0.1", .port = 7000});
    Station kernel_there(*dlcp_udp_driver(), cable, 1, {.host = "10.7.0.2"});
    exchange(kernel_there, kernel_here);
    exchange(kernel_here, kernel_there);
    CHECK(one.read().empty());
    Station v6_here(*dlcp_udp_driver(), cable, 0, {.host = "fd07::1"});
    Station v6_there(*dlcp_udp_driver(), cable, 1, {.host = "fd07::2"});
    exchange(v6_there, v6_here);
}

TEST_CASE("xdp driver: what waits for a neighbour that is not there is bounded and counted") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    dlcp_address nobody, outside;
    char text[256];
    REQUIRE(xdp->resolve(one.io(), "10.7.0.99:7000", &nobody, text, sizeof text) == 0);
    REQUIRE(xdp->resolve(one.io(), "10.8.0.99:7000+dpdk:10.9.0.1:7000", &outside, text, sizeof text) == 0);
    CHECK(one.send(nobody, std::vector<Outgoing>(40, {.head = "h"})) == 32);
    CHECK(one.counters().tx_dropped_packets == 8);
    CHECK(one.send(outside, {{.head = "h"}}) == 0);  // not on the link, and there is no gateway
    CHECK(one.counters().tx_dropped_packets == 9);
    CHECK(one.statistics()["tx_address_request_frames"] >= 1);
    std::vector<std::uint32_t> events;
    CHECK(work_until(one, one, [&] {
        for (const std::uint32_t kind : one.take_events()) events.push_back(kind);
        return !events.empty() && one.counters().tx_dropped_packets == 9 + 32;
    }));
    CHECK(events == std::vector<std::uint32_t>{DLCP_IO_NEIGHBOUR_LOST});
}

TEST_CASE("xdp driver: neighbours and gateways that are told need no asking") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    cable.ip(1, "link set eth0 address 02:00:00:00:00:02");
    cable.ip(1, "address add 10.8.0.1/24 dev eth0");
    Station one(*xdp, cable, 0,
                {.host = "10.7.0.11/24", .extra = "gateway=10.7.0.2 neighbour=10.7.0.2@02:00:00:00:00:02"});
    Station kernel(*dlcp_udp_driver(), cable, 1, {.host = "10.8.0.1"});
    one.send(kernel.address(), {{.head = "through the gateway"}});
    const std::vector<Incoming> arrived = receive(one, kernel, 1);
    REQUIRE(arrived.size() == 1);
    CHECK(arrived[0].datagram == "through the gateway");
    CHECK(one.statistics()["tx_address_request_frames"] == 0);
}

TEST_CASE("xdp driver: a link that is lost and found is told, and traffic goes on") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    Station other(*xdp, cable, 1, {.host = "10.7.0.12/24"});
    exchange(one, other);
    for (const unsigned end : {1u, 0u}) {  // the cable's other end, then our own
        CAPTURE(end);
        cable.ip(end, "link set eth0 down");
        one.table().wait(one.io(), patience_ns);
        CHECK(one.take_events() == std::vector<std::uint32_t>{DLCP_IO_LINK_DOWN});
        CHECK(one.send(other.address(), {{.head = "lost"}}) == 0);
        cable.ip(end, "link set eth0 up");
        std::vector<std::uint32_t> events;
        CHECK(work_until(one, other, [&] {
            for (const std::uint32_t kind : one.take_events()) events.push_back(kind);
            return !events.empty();
        }));
        CHECK(events == std::vector<std::uint32_t>{DLCP_IO_LINK_UP});
        // The other end hears of its own link when it looks, and the first to send may have to ask who we are.
        for (Station* from : {&other, &one}) {
            Station& to = from == &one ? other : one;
            CHECK(work_until(one, other, [&] {
                from->send(to.address(), {{.head = "found"}});
                from->read();
                return !to.read().empty();
            }));
        }
        work_until(one, other, [&] { return one.read().empty() && other.read().empty(); });
    }
}

TEST_CASE("xdp driver: an interface that is taken away is told, and wait() still sleeps") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    cable.ip(0, "link delete eth0");
    std::vector<std::uint32_t> events;
    for (int i = 0; i < 100 && (events.empty() || events.back() != DLCP_IO_DEVICE_GONE); ++i) {
        one.table().wait(one.io(), 50'000'000);
        for (const std::uint32_t kind : one.take_events()) events.push_back(kind);
    }
    REQUIRE(!events.empty());
    CHECK(events.back() == DLCP_IO_DEVICE_GONE);
    CHECK(one.read().empty());
    const std::int64_t before_ns = monotonic_ns();
    one.table().wait(one.io(), 30'000'000);
    one.table().wait(one.io(), 30'000'000);
    CHECK(monotonic_ns() - before_ns >= 30'000'000);  // the first may have had news to tell
    CHECK(one.send(one.address(), {{.head = "h"}}) == 0);
}

TEST_CASE("xdp driver: a process that is killed leaves the interface as it was") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    int ready[2];
    REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
    const pid_t child = fork();
    if (child == 0) {
        cable.enter(0);
        const Setup setup = {.host = "10.7.0.11/24"};
        const dlcp_io_config config = setup.config(false);
        dlcp_io* io = nullptr;
        char text[256];
        const char opened = xdp->open(&config, &io, text, sizeof text) == 0 ? 'y' : 'n';
        if (write(ready[1], &opened, 1) == 1) pause();
        _exit(1);
    }
    char opened = 0;
    CHECK(read(ready[0], &opened, 1) == 1);
    CHECK(opened == 'y');
    CHECK(cable.has_program(0));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    const std::int64_t until_ns = monotonic_ns() + patience_ns;
    while (cable.has_program(0) && monotonic_ns() < until_ns) {}
    CHECK(!cable.has_program(0));
    Station again(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    CHECK(cable.has_program(0));
}

TEST_CASE("xdp driver: what cannot be opened says why") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    const struct {
        Setup setup;
        int result;
        const char* text;
    } refused[] = {
        {{.host = ""}, -EINVAL, "an IP address of its own"},
        {{.host = "somewhere"}, -EINVAL, "'somewhere' is not an address"},
        {{.host = "10.7.0.11/33"}, -EINVAL, "0 to 32"},
        {{.host = "10.7.0.1/24"}, -EADDRINUSE, "the kernel has 10.7.0.1 on interface eth0"},
        {{.host = "10.7.0.11", .interface = ""}, -ENODEV, "eth0 (10.7.0.1, fd07::1)"},
        {{.host = "10.7.0.11", .interface = "eth7"}, -ENODEV, "no interface 'eth7'"},
        {{.host = "10.7.0.11", .interface = "lo"}, -EINVAL, "carries no Ethernet"},
        {{.host = "10.7.0.11", .extra = "interface=eth1"}, -EDOM, "interface eth0 is named already"},
        {{.host = "10.7.0.11", .extra = "port=eth0"}, -EDOM, "'port' is not a word of xdp"},
        {{.host = "10.7.0.11", .extra = "mode=fast"}, -EDOM, "auto, native, generic"},
        {{.host = "10.7.0.11", .extra = "queues=2"}, -EDOM, "has 1"},
        {{.host = "10.7.0.11", .extra = "vlan=4095"}, -EDOM, "1 to 4094"},
        {{.host = "10.7.0.11", .extra = "gateway=10.7.0.2"}, -EDOM, "give 10.7.0.11/PREFIX"},
        {{.host = "10.7.0.11", .extra = "neighbour=10.7.0.2"}, -EDOM, "of one station"},
        {{.host = "10.7.0.11", .extra = "neighbour=fd07::2@02:00:00:00:00:02"}, -EDOM, "of its family"},
        {{.host = "10.7.0.11/24", .extra = "gateway=10.7.0.11"}, -EDOM, "own address"},
        {{.host = "10.7.0.11/24", .extra = "gateway=10.8.0.1"}, -EDOM, "not on the link of 10.7.0.11/24"},
        {{.host = "10.7.0.11", .extra = "zero-copy=on"}, -EDOM, "did you mean 'zero_copy'"},
        {{.host = "10.7.0.11", .extra = "mode=generic zero_copy=on"}, -EDOM, "mode=native"},
        {{.host = "10.7.0.11", .extra = "zero_copy=on"}, -EOPNOTSUPP, "zero_copy=auto"},
        {{.host = "10.7.0.11", .paths = 65}, -EINVAL, "1 to 64"},
    };
    for (const auto& [setup, result, text] : refused) {
        const OpenFailure failure = open_failure(*xdp, cable, setup);
        CAPTURE(failure.text);
        CAPTURE(text);
        CHECK(failure.result == result);
        CHECK(contains(failure.text, text));
    }
    {
        Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
        const OpenFailure second = open_failure(*xdp, cable, {.host = "10.7.0.12/24"});
        CHECK(second.result == -EBUSY);
    }
    CHECK(!cable.has_program(0));
    cable.ip(0, "link set eth0 down");
    CHECK(contains(open_failure(*xdp, cable, {.host = "10.7.0.11"}).text, "ip link set dev eth0 up"));
}

TEST_CASE("xdp driver: large frames up to a page, and no MTU beyond") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    {
        Cable cable(1, 3498);
        Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
        Station other(*xdp, cable, 1, {.host = "10.7.0.12/24", .extra = "mode=generic"});
        CHECK(one.capabilities().max_datagram_bytes == 3470);
        exchange(one, other);
        exchange(other, one);
    }
    Cable cable(1, 9000);
    const OpenFailure failure = open_failure(*xdp, cable, {.host = "10.7.0.11/24"});
    CHECK(failure.result == -EMSGSIZE);
    CHECK(contains(failure.text, "3498"));
    // A smaller datagram does it too, if the kernel does the work: a program in veth's driver wants small frames only.
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24", .max_datagram_bytes = 3470});
    Station other(*xdp, cable, 1, {.host = "10.7.0.12/24", .max_datagram_bytes = 3470});
    CHECK(contains(one.warnings(), "mode=generic"));
    exchange(one, other);
}

TEST_CASE("xdp driver: what arrives while nobody reads is kept as far as it said, then dropped and counted") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    Station other(*xdp, cable, 1, {.host = "10.7.0.12/24"});
    exchange(other, one);
    const dlcp_io_capabilities capabilities = one.capabilities();
    const std::size_t kept = capabilities.receive_buffer_bytes / capabilities.max_datagram_bytes;
    for (std::size_t sent = 0; sent < kept + 512; sent += 64) {
        // In bursts that the cable takes: it is a queue of 256 frames, which the kernel empties soon.
        const std::uint64_t before = one.statistics()["rx_ring_full_frames"];
        REQUIRE(other.send(one.address(), std::vector<Outgoing>(64, {.head = pattern(1000, 1)})) == 64);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (sent < kept) CHECK(one.statistics()["rx_ring_full_frames"] == before);
    }
    CHECK(one.counters().rx_dropped_datagrams > 0);
    CHECK(one.counters().rx_dropped_datagrams <= 512);
    CHECK(one.read().size() == kept);
    exchange(one, other);
}

TEST_CASE("xdp driver: wait() is short while buffers lack, for nobody says when they are back") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    std::vector<dlcp_packet> lent;
    dlcp_packet burst[256];
    while (const int count = xdp->tx_get(one.io(), burst, 256)) lent.insert(lent.end(), burst, burst + count);
    REQUIRE(lent.size() > 1000);
    const auto waited_ns = [&](std::int64_t timeout_ns) {
        const std::int64_t from_ns = monotonic_ns();
        xdp->wait(one.io(), timeout_ns);
        return monotonic_ns() - from_ns;
    };
    // The shortest of a few, since this thread may not be scheduled at once.
    std::int64_t shortest_ns = patience_ns;
    for (int i = 0; i < 5; ++i) shortest_ns = std::min(shortest_ns, waited_ns(200'000'000));
    CHECK(shortest_ns < 100'000'000);
    for (dlcp_packet& packet : lent) packet.head_bytes = 0;
    for (std::size_t i = 0; i < lent.size(); i += 256)
        xdp->tx_put(one.io(), &lent[i], static_cast<int>(std::min<std::size_t>(256, lent.size() - i)));
    std::int64_t longest_ns = 0;  // the second announcement ends one early
    for (int i = 0; i < 2; ++i) longest_ns = std::max(longest_ns, waited_ns(20'000'000));
    CHECK(longest_ns >= 20'000'000);
    CHECK(one.take_events().empty());
}

TEST_CASE("xdp driver: wake() ends a wait, also one that comes before it") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    xdp->wake(one.io());
    for (int i = 0; i < 3; ++i) {  // announcements end some waits early
        std::thread waker([&] { xdp->wake(one.io()); });
        xdp->wait(one.io(), -1);
        waker.join();
    }
}

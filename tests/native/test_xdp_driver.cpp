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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "io/clock.hpp"
#include "io/driver_registry.hpp"
#include "io/udp_driver.hpp"
#include "support/native/open_driver.hpp"

namespace {

using namespace dlcp::test;
using dlcp::monotonic_ns;

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
    // In a thread that is in that namespace; what is thrown there is thrown here.
    void run(unsigned end, const std::function<void()>& function) {
        std::async(std::launch::async, [&] {
            enter(end);
            function();
        }).get();
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

OpenDriver open_at(const dlcp_io_table& table, Cable& cable, unsigned end, const Setup& setup) {
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
bool work_until(Station& one, Station& other, const std::function<bool()>& done) {
    for (const std::int64_t until_ns = monotonic_ns() + patience_ns; monotonic_ns() < until_ns;) {
        if (done()) return true;
        one.table().wait(one, 1'000'000);
        other.table().wait(other, 1'000'000);
    }
    return done();
}

// `count` packets that arrive at `to`, while `from` does its work.
std::vector<Incoming> receive(Station& from, Station& to, std::size_t count) {
    std::vector<Incoming> out;
    work_until(from, to, [&] {
        CHECK(from.receive().empty());
        for (Incoming& packet : to.receive()) out.push_back(std::move(packet));
        return out.size() >= count;
    });
    return out;
}

// Full packets but the last, which is of odd length where half of a full one is even.
std::vector<Outgoing> make_run(unsigned count, std::size_t datagram_bytes, std::uint8_t tos) {
    std::vector<Outgoing> out = dlcp::test::make_run(0, count, datagram_bytes - 80, 0, tos);
    out.back().body.resize(datagram_bytes / 2 + 1 - 80);
    return out;
}

void exchange(Station& from, Station& to) {
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

OpenFailure refusal(const dlcp_io_table& table, Cable& cable, const Setup& setup) {
    OpenFailure out;
    cable.run(0, [&] { out = open_failure(table, setup.config(false)); });
    return out;
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
    for (const Incoming& packet : receive(one, kernel, 6)) sources.insert(kernel.text_of(packet.source));
    CHECK(sources == std::multiset<std::string>{"10.7.0.11:7000", "10.7.0.11:7000", "10.7.0.11:7001",
                                                "10.7.0.11:7001", "10.7.0.11:7002", "10.7.0.11:7003"});
    for (const char* answered : {"10.7.0.11:7003", "10.7.0.11:7000"}) {
        kernel.send(kernel.resolve(answered), {{.head = answered}});
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
    CHECK(one.receive().empty());
    Station v6_here(*dlcp_udp_driver(), cable, 0, {.host = "fd07::1"});
    Station v6_there(*dlcp_udp_driver(), cable, 1, {.host = "fd07::2"});
    exchange(v6_there, v6_here);
}

TEST_CASE("xdp driver: what waits for a neighbour that is not there is bounded and counted") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    const dlcp_address nobody = one.resolve("10.7.0.99:7000");
    const dlcp_address outside = one.resolve("10.8.0.99:7000+dpdk:10.9.0.1:7000");
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
        one.table().wait(one, patience_ns);
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
                from->receive();
                return !to.receive().empty();
            }));
        }
        work_until(one, other, [&] { return one.receive().empty() && other.receive().empty(); });
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
        one.table().wait(one, 50'000'000);
        for (const std::uint32_t kind : one.take_events()) events.push_back(kind);
    }
    REQUIRE(!events.empty());
    CHECK(events.back() == DLCP_IO_DEVICE_GONE);
    CHECK(one.receive().empty());
    const std::int64_t before_ns = monotonic_ns();
    one.table().wait(one, 30'000'000);
    one.table().wait(one, 30'000'000);
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
        const OpenFailure failure = refusal(*xdp, cable, setup);
        CAPTURE(failure.text);
        CAPTURE(text);
        CHECK(failure.result == result);
        CHECK(contains(failure.text, text));
    }
    {
        Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
        const OpenFailure second = refusal(*xdp, cable, {.host = "10.7.0.12/24"});
        CHECK(second.result == -EBUSY);
    }
    CHECK(!cable.has_program(0));
    cable.ip(0, "link set eth0 down");
    CHECK(contains(refusal(*xdp, cable, {.host = "10.7.0.11"}).text, "ip link set dev eth0 up"));
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
    const OpenFailure failure = refusal(*xdp, cable, {.host = "10.7.0.11/24"});
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
    CHECK(one.receive().size() == kept);
    exchange(one, other);
}

TEST_CASE("xdp driver: wait() is short while buffers lack, for nobody says when they are back") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    std::vector<dlcp_packet> lent;
    dlcp_packet burst[256];
    while (const int count = xdp->tx_get(one, burst, 256)) lent.insert(lent.end(), burst, burst + count);
    REQUIRE(lent.size() > 1000);
    const auto waited_ns = [&](std::int64_t timeout_ns) {
        const std::int64_t from_ns = monotonic_ns();
        xdp->wait(one, timeout_ns);
        return monotonic_ns() - from_ns;
    };
    // The shortest of a few, since this thread may not be scheduled at once.
    std::int64_t shortest_ns = patience_ns;
    for (int i = 0; i < 5; ++i) shortest_ns = std::min(shortest_ns, waited_ns(200'000'000));
    CHECK(shortest_ns < 100'000'000);
    for (dlcp_packet& packet : lent) packet.head_bytes = 0;
    for (std::size_t i = 0; i < lent.size(); i += 256)
        xdp->tx_put(one, &lent[i], static_cast<int>(std::min<std::size_t>(256, lent.size() - i)));
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
    xdp->wake(one);
    for (int i = 0; i < 3; ++i) {  // announcements end some waits early
        std::thread waker([&] { xdp->wake(one); });
        xdp->wait(one, -1);
        waker.join();
    }
}

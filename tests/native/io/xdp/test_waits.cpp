// The xdp driver where something lacks or ends: the link, the interface, buffers, a reader, a neighbour, the driver
// itself.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "xdp_cable.hpp"

using namespace dlcp;
using namespace dlcp::test;

namespace {

// Calls of sendto() that the kernel does not get: frames stay in the ring, as with a card that has not come to them.
std::atomic<int> sends_withheld = 0;

void append(std::vector<std::uint32_t>& to, const std::vector<std::uint32_t>& more) {
    to.insert(to.end(), more.begin(), more.end());
}

std::int64_t waited_ns(Station& station, std::int64_t timeout_ns) {
    const std::int64_t from_ns = monotonic_ns();
    station.table().wait(station, timeout_ns);
    return monotonic_ns() - from_ns;
}

}  // namespace

// In the place of the C library's, for this program and the plugins that it loads.
extern "C" [[gnu::visibility("default")]] ssize_t sendto(int descriptor, const void* bytes, size_t count,
                                                         int flags, const sockaddr* to, socklen_t to_bytes) {
    if (sends_withheld > 0) {
        --sends_withheld;
        errno = EAGAIN;
        return -1;
    }
    return syscall(SYS_sendto, descriptor, bytes, count, flags, to, to_bytes);
}

TEST_CASE("xdp driver: what was put leaves before it closes") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    Station other(*xdp, cable, 1, {.host = "10.7.0.12/24"});
    exchange(one, other);
    sends_withheld = 2;  // that of tx_put, and the first when it closes
    REQUIRE(one.send(other.address(), {{.head = "goodbye"}}) == 1);
    CHECK(sends_withheld == 1);
    one.close();
    CHECK(sends_withheld == 0);
    std::vector<Incoming> arrived;
    CHECK(wait_until([&] {
        arrived = other.receive();
        return !arrived.empty();
    }));
    REQUIRE(arrived.size() == 1);
    CHECK(arrived[0].datagram == "goodbye");
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
        append(events, one.take_events());
        return !events.empty() && one.counters().tx_dropped_packets == 9 + 32;
    }));
    CHECK(events == std::vector<std::uint32_t>{DLCP_IO_NEIGHBOUR_LOST});
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
        std::vector<std::uint32_t> events;
        CHECK(wait_until([&] {  // a frame or a timer may end a wait before
            one.table().wait(one, patience_ns);
            append(events, one.take_events());
            one.receive();
            return !events.empty();
        }));
        CHECK(events == std::vector<std::uint32_t>{DLCP_IO_LINK_DOWN});
        CHECK(one.send(other.address(), {{.head = "lost"}}) == 0);
        cable.ip(end, "link set eth0 up");
        events.clear();
        CHECK(work_until(one, other, [&] {
            append(events, one.take_events());
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

TEST_CASE("xdp driver: it opens without a link, and says so") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station other(*xdp, cable, 1, {.host = "10.7.0.12/24"});
    cable.ip(1, "link set eth0 down");
    REQUIRE(wait_until([&] { return !cable.is_up(0); }));
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    CHECK(contains(one.warnings(), "eth0 has no link"));
    CHECK(one.send(other.address(), {{.head = "lost"}}) == 0);
    cable.ip(1, "link set eth0 up");
    std::vector<std::uint32_t> events;
    CHECK(work_until(one, other, [&] {
        append(events, one.take_events());
        return !events.empty();
    }));
    CHECK(events == std::vector<std::uint32_t>{DLCP_IO_LINK_UP});
    CHECK(work_until(one, other, [&] {
        one.send(other.address(), {{.head = "found"}});
        one.receive();
        return !other.receive().empty();
    }));
}

TEST_CASE("xdp driver: events that are left end one wait") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    Station other(*xdp, cable, 1, {.host = "10.7.0.12/24"});
    exchange(one, other);
    const auto can_send = [&] {
        xdp->wait(one, 10'000'000);
        return one.send(other.address(), {{.head = "h"}}) == 1;
    };
    cable.ip(0, "link set eth0 down");
    REQUIRE(wait_until([&] { return !can_send(); }));
    cable.ip(0, "link set eth0 up");
    REQUIRE(wait_until(can_send));
    dlcp_io_event first;
    REQUIRE(xdp->events(one, &first, 1) == 1);
    CHECK(first.kind == DLCP_IO_LINK_DOWN);
    constexpr std::int64_t second_ns = 1'000'000'000;  // the link is announced again after two
    CHECK(waited_ns(one, second_ns) < second_ns);
    CHECK(wait_until([&] { return waited_ns(one, second_ns / 10) >= second_ns / 10; }));
    CHECK(one.take_events() == std::vector<std::uint32_t>{DLCP_IO_LINK_UP});
}

TEST_CASE("xdp driver: an interface that is taken away is told, and wait() still sleeps") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    cable.ip(0, "link delete eth0");
    std::vector<std::uint32_t> events;
    CHECK(wait_until([&] {
        one.table().wait(one, patience_ns);
        append(events, one.take_events());
        return !events.empty() && events.back() == DLCP_IO_DEVICE_GONE;
    }));
    CHECK(one.receive().empty());
    CHECK(wait_until([&] { return waited_ns(one, 30'000'000) >= 30'000'000; }));  // news may end one early
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
    CHECK(wait_until([&] { return !cable.has_program(0); }));
    Station again(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    CHECK(cable.has_program(0));
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
    const std::uint64_t before = cable.received_frames(0);
    for (std::size_t sent = 0; sent < kept + 512; sent += 64) {
        // In bursts, each when the one before is through: the cable is a queue of 256 frames.
        REQUIRE(other.send(one.address(), std::vector<Outgoing>(64, {.head = pattern(1000, 1)})) == 64);
        REQUIRE(wait_until([&] {
            other.table().wait(other, 0);
            return cable.received_frames(0) >= before + sent + 64;
        }));
        if (sent < kept) CHECK(one.counters().rx_dropped_datagrams == 0);
    }
    CHECK(one.counters().rx_dropped_datagrams > 0);
    CHECK(one.counters().rx_dropped_datagrams <= 512);
    CHECK(receive(other, one, kept).size() == kept);
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
    // This thread may not be scheduled at once.
    CHECK(wait_until([&] { return waited_ns(one, 200'000'000) < 100'000'000; }));
    for (dlcp_packet& packet : lent) packet.head_bytes = 0;
    for (std::size_t i = 0; i < lent.size(); i += 256)
        xdp->tx_put(one, &lent[i], static_cast<int>(std::min<std::size_t>(256, lent.size() - i)));
    CHECK(wait_until([&] { return waited_ns(one, 20'000'000) >= 20'000'000; }));  // a timer may end one early
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

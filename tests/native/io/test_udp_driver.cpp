// The UDP driver over real sockets on loopback. No test sleeps: on loopback a datagram is in the receiver's socket
// when the sending call returns, or dropped for good.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "io/udp_driver.hpp"
#include "native/io/driver_checks.hpp"
#include "support/native/open_driver.hpp"

namespace {

using namespace dlcp::test;

const dlcp_io_table& udp = *dlcp_udp_driver();

// The tests that need IPv6 are skipped, saying so, where loopback has none.
bool has_ipv6() {
    const int descriptor = socket(AF_INET6, SOCK_DGRAM, 0);
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    const bool bound =
        descriptor >= 0 && bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (descriptor >= 0) close(descriptor);
    if (!bound) MESSAGE("skipped: this host has no IPv6 loopback");
    return bound;
}

dlcp_io_config config_for(const char* host, std::uint16_t paths = 1) {
    dlcp_io_config config = {};
    config.bind_host = host;
    config.paths = paths;
    return config;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string text_of(const dlcp_address& address) {
    char text[128];
    udp.format(nullptr, &address, text, sizeof text);
    return text;
}

class Io : public OpenDriver {
public:
    explicit Io(const dlcp_io_config& config) : OpenDriver(udp, config) {}
    explicit Io(const char* host = nullptr, std::uint16_t paths = 1) : Io(config_for(host, paths)) {}
};

// The driver's own socket, found by its address: the only way to make this kernel refuse something.
int descriptor_of(const Io& io) {
    const dlcp_address address = io.address();
    for (int descriptor = 0; descriptor < 4096; ++descriptor) {
        sockaddr_in6 own = {};
        socklen_t length = sizeof own;
        int type = 0;
        socklen_t type_length = sizeof type;
        if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &type_length) == 0 && type == SOCK_DGRAM &&
            getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length) == 0 && length == address.length &&
            memcmp(&own, address.bytes, length) == 0) {
            return descriptor;
        }
    }
    return -1;
}

constexpr int udp_no_check6_tx = 101;  // linux/udp.h, which does not go with netinet/udp.h
constexpr int udp_no_check6_rx = 102;

}  // namespace

TEST_CASE("udp: runs with body and tail arrive whole, in order, with every kind of offload") {
    for (const std::uint32_t sender_flags : {0u, DLCP_IO_NO_GSO}) {
        for (const std::uint32_t receiver_flags : {0u, DLCP_IO_NO_GRO}) {
            CAPTURE(sender_flags);
            CAPTURE(receiver_flags);
            dlcp_io_config sender_config = config_for(nullptr);
            sender_config.flags = sender_flags;
            dlcp_io_config receiver_config = config_for(nullptr);
            receiver_config.flags = receiver_flags;
            const Io sender(sender_config);
            const Io receiver(receiver_config);

            std::vector<Outgoing> outgoing = make_run(1, 20, 1392, 0, 0);
            append(outgoing, make_run(2, 16, 1392, 0, 2));
            append(outgoing, make_run(3, 100, 1000, 0, 46 << 2));  // longer than one super-packet may be
            append(outgoing, {{.head = "control only"}, {.head = "another length of control", .tail = "tag"}});
            CHECK(sender.send(receiver.address(), outgoing) == static_cast<int>(outgoing.size()));
            check_arrived(outgoing, receiver.receive(7));

            const dlcp_io_counters sent = sender.counters();
            CHECK(sent.tx_packets == outgoing.size());
            CHECK(sent.tx_dropped_packets == 0);
            CHECK(sent.tx_calls == 1);
            CHECK(sender.capabilities().wants_runs == (sender_flags == 0 ? 1 : 0));
            const dlcp_io_counters received = receiver.counters();
            CHECK(received.rx_packets == outgoing.size());
            CHECK(received.rx_bytes == sent.tx_bytes);
            CHECK(received.rx_dropped_datagrams == 0);
        }
    }
}

TEST_CASE("udp: a packet's arrival time is when it came, not when it was read") {
    const Io sender;
    const Io receiver;
    sender.send(receiver.address(), {{.head = "the first of a socket may be stamped late"}});
    receiver.receive();
    const std::int64_t before_ns = udp.now_ns(sender);
    sender.send(receiver.address(), make_run(1, 20, 1000, 0, 0));
    const std::int64_t after_ns = udp.now_ns(sender);
    udp.wait(sender, 2'000'000);  // nothing comes: time passes
    dlcp_packet packets[20];
    REQUIRE(udp.rx(receiver, packets, 20) == 20);
    const std::int64_t tolerance_ns = 100'000;  // the kernel's stamp is wall-clock time, translated when read
    for (const dlcp_packet& packet : packets) {
        CHECK(packet.arrival_ns >= before_ns - tolerance_ns);
        CHECK(packet.arrival_ns <= after_ns + tolerance_ns);
    }
    udp.rx_done(receiver, packets, 20);
}

TEST_CASE("udp: an echo goes back to where the packet came from") {
    const Io a;
    const Io b;
    check_echo(a, b, b.address(), make_run(5, 16, 1392, 0, 0));
}

TEST_CASE("udp: every TOS is read back, and CE is counted") {
    for (const char* host : {"127.0.0.1", "::1"}) {
        if (std::string(host) == "::1" && !has_ipv6()) continue;
        CAPTURE(host);
        const Io sender(host);
        const Io receiver(host);
        CHECK(receiver.capabilities().reports_ecn == 1);
        std::vector<Outgoing> outgoing;
        for (unsigned tos = 0; tos < 256; ++tos) {
            outgoing.push_back({.head = pattern(100, tos), .tos = static_cast<std::uint8_t>(tos)});
        }
        CHECK(sender.send(receiver.address(), outgoing) == 256);
        check_arrived(outgoing, receiver.receive());
        CHECK(receiver.counters().ce_packets == 64);
    }
}

TEST_CASE("udp: IPv6 carries runs, and its addresses compare equal") {
    if (!has_ipv6()) return;
    const Io sender("[::1]", 4);
    const Io receiver("::1");
    std::vector<Outgoing> outgoing = make_run(1, 40, 1372, 2, 10);
    CHECK(sender.send(receiver.address(), outgoing) == 40);
    check_arrived(outgoing, receiver.receive());

    sender.send(receiver.address(), {{.path = 0}});
    dlcp_packet packet;
    REQUIRE(udp.rx(receiver, &packet, 1) == 1);
    const dlcp_address expected = sender.address();
    CHECK(packet.address->length == expected.length);
    CHECK(memcmp(packet.address->bytes, expected.bytes, sizeof expected.bytes) == 0);
    udp.rx_done(receiver, &packet, 1);
}

TEST_CASE("udp: a path is a source port, path 0 the advertised one, whether peers answer or not") {
    const Io sender(nullptr, 8);
    const Io receiver;
    std::vector<Outgoing> outgoing;
    for (std::uint16_t path = 0; path < 8; ++path) append(outgoing, make_run(path, 4, 500, path, 0));
    CHECK(sender.send(receiver.address(), outgoing) == 32);
    const std::vector<Incoming> incoming = receiver.receive();
    check_arrived(outgoing, incoming);
    std::set<std::string> sources;
    for (std::size_t i = 0; i < incoming.size(); ++i) {
        const std::string source = text_of(incoming[i].source);
        sources.insert(source);
        CHECK(source == text_of(incoming[i / 4 * 4].source));
    }
    CHECK(sources.size() == 8);
    CHECK(text_of(incoming[0].source) == text_of(sender.address()));
    CHECK(sender.counters().tx_calls == 8);

    for (std::uint16_t path = 0; path < 9; ++path)
        sender.send(receiver.address(), {{.path = path, .flags = DLCP_PACKET_ANSWERED}});
    const std::vector<Incoming> answered = receiver.receive();
    REQUIRE(answered.size() == 9);
    for (std::size_t path = 0; path < 9; ++path)
        CHECK(text_of(answered[path].source) == text_of(incoming[path % 8 * 4].source));
}

TEST_CASE("udp: packets to any port that peers may answer to are received, one system call per readable one") {
    const Io many(nullptr, 64);
    const Io other;
    std::vector<Outgoing> hello;
    for (std::uint16_t path = 0; path < 64; ++path) hello.push_back({.path = path, .flags = DLCP_PACKET_ANSWERED});
    many.send(other.address(), hello);
    dlcp_packet packets[64];
    const int count = udp.rx(other, packets, 64);
    REQUIRE(count == 64);
    std::vector<dlcp_address> sources;
    for (const dlcp_packet& packet : packets) sources.push_back(*packet.address);
    udp.rx_done(other, packets, count);

    for (std::size_t i = 0; i < sources.size(); ++i) other.send(sources[i], {{.head = "to " + std::to_string(i)}});
    CHECK(many.receive().size() == 64);
    CHECK(many.counters().rx_calls == 64);
    CHECK(udp.rx(many, packets, 64) == 0);
    CHECK(many.counters().rx_calls == 64);  // nothing readable, nothing read
}

TEST_CASE("udp: what is sent to a port that peers do not answer to is not received") {
    const Io many(nullptr, 2);
    const Io other;
    many.send(other.address(), {{.path = 1}});
    const std::vector<Incoming> incoming = other.receive();
    REQUIRE(incoming.size() == 1);
    other.send(incoming[0].source, {{.head = "nobody reads it"}});
    other.send(many.address(), {{.head = "read"}});
    const std::vector<Incoming> answers = many.receive();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].datagram == "read");
}

TEST_CASE("udp: a busy socket does not keep the others waiting") {
    const Io many(nullptr, 2);
    const Io other;
    many.send(other.address(), {{.path = 1, .flags = DLCP_PACKET_ANSWERED}});
    dlcp_packet packet;
    REQUIRE(udp.rx(other, &packet, 1) == 1);
    const dlcp_address second_port = *packet.address;
    udp.rx_done(other, &packet, 1);

    for (int i = 0; i < 8; ++i) other.send(many.address(), std::vector<Outgoing>(250, {.head = "main port"}));
    other.send(second_port, {{.head = "second port"}});
    int taken = 0;
    for (bool seen = false; !seen; ++taken) {
        REQUIRE(udp.rx(many, &packet, 1) == 1);
        seen = packet.head_bytes == strlen("second port");
        udp.rx_done(many, &packet, 1);
    }
    CHECK(taken < 2000);  // it was queued behind none of the 2000
}

TEST_CASE("udp: unsent slots are returned, and slots come back in any number of puts") {
    const Io sender;
    const Io receiver;
    const dlcp_address to = receiver.address();
    dlcp_packet packets[300];
    CHECK(udp.tx_get(sender, packets, 300) == 256);
    CHECK(sender.capabilities().max_burst_packets == 256);
    CHECK(udp.tx_get(sender, packets + 256, 1) == 0);
    for (int i = 0; i < 256; ++i) {
        packets[i].head[0] = 'x';
        packets[i].head_bytes = i % 2;
        packets[i].address = &to;
    }
    CHECK(udp.tx_put(sender, packets, 100) == 50);
    CHECK(udp.tx_get(sender, packets, 300) == 100);
    for (dlcp_packet& packet : packets) packet.head_bytes = 0;
    CHECK(udp.tx_put(sender, packets, 256) == 0);
    CHECK(udp.tx_get(sender, packets, 300) == 256);
    CHECK(udp.tx_put(sender, packets, 256) == 0);
    CHECK(receiver.receive().size() == 50);
    CHECK(udp.tx_get(sender, packets, 0) == 0);
    CHECK(udp.tx_get(sender, packets, -1) == 0);
    CHECK(udp.tx_put(sender, packets, -1) == 0);
    CHECK(udp.rx(sender, packets, -1) == 0);
}

TEST_CASE("udp: jumbo datagrams") {
    for (const std::uint32_t flags : {0u, DLCP_IO_NO_GRO}) {
        dlcp_io_config config = config_for(nullptr);
        config.flags = flags;
        const Io sender;
        const Io receiver(config);
        CHECK(sender.capabilities().max_datagram_bytes == 9152);
        std::vector<Outgoing> outgoing = make_run(9, 20, 8972 - 80, 0, 2);
        // The largest: all in the head, as an encrypted packet is.
        append(outgoing, {{.head = pattern(9152 - 16, 1), .tail = pattern(16, 2)}});
        CHECK(sender.send(receiver.address(), outgoing) == 21);
        check_arrived(outgoing, receiver.receive());
    }
}

TEST_CASE("udp: a datagram longer than a buffer is discarded and counted") {
    for (const std::uint32_t flags : {0u, DLCP_IO_NO_GRO}) {
        dlcp_io_config config = config_for(nullptr);
        config.flags = flags;
        const Io sender;
        const Io receiver(config);
        const std::vector<Outgoing> outgoing = {
            {.head = "before"}, {.head = "long", .body = pattern(9300, 1)}, {.head = "after"}};
        CHECK(sender.send(receiver.address(), outgoing) == 3);
        const std::vector<Incoming> incoming = receiver.receive();
        REQUIRE(incoming.size() == 2);
        CHECK(incoming[0].datagram == "before");
        CHECK(incoming[1].datagram == "after");
        CHECK(receiver.counters().rx_truncated_packets == 1);
    }
}

TEST_CASE("udp: what the kernel refuses is counted, and what follows is not touched by it") {
    const Io sender;
    const Io receiver;
    const Outgoing good = {.head = "good"};
    const Outgoing too_long = {.head = "long", .body = pattern(65535, 1)};
    CHECK(sender.send(receiver.address(), {good, too_long, good, too_long, good}) == 3);
    CHECK(receiver.receive().size() == 3);
    CHECK(sender.counters().tx_dropped_packets == 2);
    CHECK(sender.counters().tx_packets == 3);

    // A super-packet to a port that does not exist: neither it nor its packets singly can go.
    dlcp_address nowhere = receiver.address();
    nowhere.bytes[2] = nowhere.bytes[3] = 0;
    CHECK(sender.send(nowhere, make_run(1, 10, 500, 0, 0)) == 0);
    CHECK(sender.counters().tx_dropped_packets == 12);
    CHECK(sender.capabilities().wants_runs == 1);
    CHECK(sender.send(receiver.address(), {good}) == 1);
    CHECK(sender.receive().empty());
}

TEST_CASE("udp: where super-packets are refused, their packets go one by one, and so do later ones") {
    for (const char* host : {"127.0.0.1", "::1"}) {
        if (std::string(host) == "::1" && !has_ipv6()) continue;
        CAPTURE(host);
        const Io sender(host);
        const Io receiver(host);
        // A socket without UDP checksums cannot segment: the kernel refuses as it does on a device that cannot.
        const int on = 1;
        if (std::string(host) == "::1") {
            REQUIRE(setsockopt(descriptor_of(sender), IPPROTO_UDP, udp_no_check6_tx, &on, sizeof on) == 0);
            REQUIRE(setsockopt(descriptor_of(receiver), IPPROTO_UDP, udp_no_check6_rx, &on, sizeof on) == 0);
        } else {
            REQUIRE(setsockopt(descriptor_of(sender), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on) == 0);
        }
        CHECK(sender.capabilities().wants_runs == 1);
        std::vector<Outgoing> outgoing = make_run(1, 30, 1200, 0, 2);
        append(outgoing, make_run(2, 30, 900, 0, 0));
        CHECK(sender.send(receiver.address(), outgoing) == 60);
        CHECK(sender.capabilities().wants_runs == 0);
        check_arrived(outgoing, receiver.receive());

        const std::uint64_t calls = sender.counters().tx_calls;
        CHECK(sender.send(receiver.address(), outgoing) == 60);
        CHECK(sender.counters().tx_calls == calls + 1);  // nothing refused any more
        CHECK(sender.counters().tx_packets == 120);
        CHECK(sender.counters().tx_dropped_packets == 0);
        check_arrived(outgoing, receiver.receive());
    }
}

TEST_CASE("udp: packets that cannot be sent are counted, never read from nowhere") {
    const Io sender;
    const Io receiver;
    const dlcp_address to = receiver.address();
    const dlcp_address none = {};
    dlcp_packet packets[6];
    REQUIRE(udp.tx_get(sender, packets, 6) == 6);
    for (dlcp_packet& packet : packets) {
        packet.head_bytes = 1;
        packet.address = &to;
    }
    packets[0].address = nullptr;
    packets[1].address = &none;
    packets[2].flags = DLCP_PACKET_VIRTUAL;
    packets[2].body_bytes = 100;
    packets[3].head_bytes = DLCP_HEAD_CAPACITY + 1;
    packets[4].tail_bytes = UINT32_MAX;
    packets[5].path = UINT16_MAX;  // wraps: path ids are the engine's business
    CHECK(udp.tx_put(sender, packets, 6) == 1);
    CHECK(sender.counters().tx_dropped_packets == 5);
}

TEST_CASE("udp: nobody at the port does not stop the driver") {
    const Io sender;
    const Io receiver;
    dlcp_address closed_port;
    {
        const Io gone;
        closed_port = gone.address();
    }
    for (int i = 0; i < 3; ++i) sender.send(closed_port, make_run(1, 10, 500, 0, 0));
    CHECK(sender.send(receiver.address(), make_run(2, 10, 500, 0, 0)) == 10);
    CHECK(receiver.receive().size() == 10);
    CHECK(sender.receive().empty());
}

TEST_CASE("udp: what does not fit the receive buffer is counted, and the capacity promised does fit") {
    dlcp_io_config config = config_for(nullptr);
    config.socket_buffer_bytes = 256 * 1024;
    const Io receiver(config);
    dlcp_io_config plain = config_for(nullptr);
    plain.flags = DLCP_IO_NO_GSO;
    const Io sender(plain);
    const std::uint32_t promised_bytes = receiver.capabilities().receive_buffer_bytes;
    REQUIRE(promised_bytes >= 128 * 1024);
    const Outgoing packet = {.head = "h", .body = pattern(1471, 1)};
    for (std::uint32_t bytes = 0; bytes + 1472 <= promised_bytes; bytes += 1472) {
        sender.send(receiver.address(), {packet});
    }
    CHECK(receiver.counters().rx_dropped_datagrams == 0);
    for (int i = 0; i < 4; ++i) sender.send(receiver.address(), std::vector<Outgoing>(256, packet));
    const std::uint64_t sent = sender.counters().tx_packets;
    const std::uint64_t dropped = receiver.counters().rx_dropped_datagrams;
    CHECK(dropped > 0);
    CHECK(receiver.receive().size() + dropped == sent);
}

TEST_CASE("udp: buffers stay as they are until rx_done") {
    const Io sender;
    const Io receiver;
    std::vector<Outgoing> outgoing = make_run(1, 256, 1392, 0, 0);
    outgoing.back() = outgoing.front();
    for (int i = 0; i < 12; ++i) REQUIRE(sender.send(receiver.address(), outgoing) == 256);
    // Take all there is without giving anything back: the driver runs out of buffers, nothing is overwritten.
    std::vector<dlcp_packet> packets(12 * 256);
    int held = 0;
    while (const int count = udp.rx(receiver, packets.data() + held, 50)) held += count;
    CHECK(held > 256);
    for (int i = 0; i < held; ++i) {
        const dlcp_packet& packet = packets[static_cast<std::size_t>(i)];
        REQUIRE(std::string(reinterpret_cast<const char*>(packet.head), packet.head_bytes) ==
                outgoing[static_cast<std::size_t>(i) % 256].datagram());
    }
    // Back in another order and other groups, and once too often.
    std::reverse(packets.begin(), packets.begin() + held);
    for (int i = 0; i < held; i += 3) udp.rx_done(receiver, packets.data() + i, std::min(3, held - i));
    udp.rx_done(receiver, packets.data(), 1);
    CHECK(held + static_cast<int>(receiver.receive().size()) == 12 * 256);
}

TEST_CASE("udp: wait ends by timeout, packet or wake") {
    const Io io(nullptr, 2);
    const Io other;
    check_wait(io, other, io.address());
}

TEST_CASE("udp: wake from another thread, every time") {
    const Io io;
    check_every_wake(io);
}

TEST_CASE("udp: open names what is wrong and what to do") {
    SUBCASE("port in use") {
        const Io first;
        dlcp_io_config config = config_for(nullptr);
        const std::string text = text_of(first.address());
        config.port = static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
        const OpenFailure failure = open_failure(udp, config);
        CHECK(failure.result == -EADDRINUSE);
        CHECK(contains(failure.text, text));
        CHECK(contains(failure.text, "choose another port"));
    }
    SUBCASE("absent interface") {
        dlcp_io_config config = config_for(nullptr);
        config.interface_name = "dlcp-none";
        const OpenFailure failure = open_failure(udp, config);
        CHECK(failure.result == -ENODEV);
        CHECK(contains(failure.text, "dlcp-none"));
        CHECK(contains(failure.text, "lo (127.0.0.1"));
    }
    SUBCASE("address of another host") {
        const OpenFailure failure = open_failure(udp, config_for("192.0.2.77"));  // RFC 5737: documentation only
        CHECK(failure.result == -EADDRNOTAVAIL);
        CHECK(contains(failure.text, "192.0.2.77 is not an address of this host"));
    }
    SUBCASE("no address at all") {
        const OpenFailure failure = open_failure(udp, config_for("300.1.2.3.bad..name"));
        CHECK(failure.result < 0);
        CHECK(contains(failure.text, "300.1.2.3.bad..name"));
    }
    SUBCASE("paths") {
        CHECK(open_failure(udp, config_for(nullptr, 0)).result == -EINVAL);
        const OpenFailure failure = open_failure(udp, config_for(nullptr, 65));
        CHECK(failure.result == -EINVAL);
        CHECK(contains(failure.text, "paths is 65: choose 1 to 64"));
    }
    SUBCASE("datagram size, flags, extra") {
        dlcp_io_config config = config_for(nullptr);
        config.max_datagram_bytes = 100;
        CHECK(contains(open_failure(udp, config).text, "max_datagram_bytes is 100"));
        config = config_for(nullptr);
        config.flags = 8;
        CHECK(contains(open_failure(udp, config).text, "flags 0x8"));
        config = config_for(nullptr);
        config.extra = "--lcores 1";
        CHECK(
            contains(open_failure(udp, config).text, "driver_options is '--lcores 1'; the udp driver takes none"));
        CHECK(open_failure(udp, config).result == -EDOM);
    }
    SUBCASE("no place for the sentence") {
        const dlcp_io_config config = config_for(nullptr, 0);
        dlcp_io* io = nullptr;
        CHECK(udp.open(&config, &io, nullptr, 0) == -EINVAL);
        char text[8];
        CHECK(udp.open(&config, &io, text, sizeof text) == -EINVAL);
        CHECK(strlen(text) == 7);
        CHECK(udp.open(nullptr, &io, text, sizeof text) == -EINVAL);
        CHECK(udp.open(&config, nullptr, text, sizeof text) == -EINVAL);
    }
}

TEST_CASE("udp: an interface may be named, with and without an address") {
    dlcp_io_config config = config_for(nullptr);
    config.interface_name = "lo";
    const Io by_interface(config);
    CHECK(contains(text_of(by_interface.address()), "127.0.0.1:"));
    config.bind_host = "127.0.0.1";
    const Io by_both(config);
    CHECK(by_both.send(by_interface.address(), {{.head = "x"}}) == 1);
    CHECK(by_interface.receive().size() == 1);
}

TEST_CASE("udp: capabilities follow interface and configuration") {
    dlcp_io_config config = config_for("127.0.0.1");
    config.max_datagram_bytes = 1472;
    CHECK(Io(config).capabilities().max_datagram_bytes == 1472);
    config.max_datagram_bytes = 60'000;
    CHECK(Io(config).capabilities().max_datagram_bytes == 9152);
    CHECK(Io("127.0.0.1").capabilities().is_loopback == 1);
    CHECK(Io("127.0.0.2").capabilities().is_loopback == 1);
    const Io wildcard("0.0.0.0");
    CHECK(wildcard.capabilities().is_loopback == 0);
    CHECK(wildcard.capabilities().max_datagram_bytes >= 500);
    CHECK(wildcard.capabilities().pollable == 1);
}

TEST_CASE("udp: a small grant is a warning that names the sysctl") {
    dlcp_io_config config = config_for(nullptr);
    config.socket_buffer_bytes = 64 * 1024;
    const Io enough(config);
    CHECK(enough.warnings() == "");
    config.socket_buffer_bytes = UINT32_MAX;  // more than any kernel grants: half of INT_MAX at most
    const Io too_much(config);
    CHECK(contains(too_much.warnings(), "sysctl -w net.core.rmem_max="));
    CHECK(contains(too_much.warnings(), "sysctl -w net.core.wmem_max="));
}

TEST_CASE("udp: addresses as text, both ways") {
    const Io io;
    dlcp_address address;
    char error[256];
    CHECK(udp.resolve(io, "10.1.2.3:7000", &address, error, sizeof error) == 0);
    CHECK(text_of(address) == "10.1.2.3:7000");
    CHECK(udp.resolve(io, "localhost:65535", &address, error, sizeof error) == 0);
    CHECK(text_of(address) == "127.0.0.1:65535");
    char tiny[6];
    udp.format(io, &address, tiny, sizeof tiny);
    CHECK(std::string(tiny) == "127.0");
    const dlcp_address none = {};
    CHECK(text_of(none) == "(no address)");

    const char* bad[] = {
        "",         "10.0.0.1", "10.0.0.1:", "10.0.0.1:0",  "10.0.0.1:65536",        "10.0.0.1:7x", ":7000",
        "::1:7000", "[::1]",    "[::1:7000", "10.0.0.1:-1", "300.0.0.1.bad..name:1", "[::1]:7000"};
    for (const char* text : bad) {
        CAPTURE(text);
        error[0] = '\0';
        CHECK(udp.resolve(io, text, &address, error, sizeof error) < 0);
        CHECK(strlen(error) > 10);
    }
    CHECK(contains(error, "IPv4"));  // the last: an IPv6 peer of an IPv4 endpoint
    CHECK(udp.resolve(io, nullptr, &address, error, sizeof error) == -EINVAL);
    CHECK(udp.resolve(io, "10.0.0.1:1", nullptr, error, sizeof error) == -EINVAL);

    if (!has_ipv6()) return;
    const Io io6("::1");
    CHECK(udp.resolve(io6, "[2001:db8::1]:7000", &address, error, sizeof error) == 0);
    CHECK(text_of(address) == "[2001:db8::1]:7000");
    CHECK(udp.resolve(io6, "10.0.0.1:7000", &address, error, sizeof error) < 0);
    CHECK(contains(error, "IPv6"));
}

TEST_CASE("udp: a closed driver answers, and does nothing") { check_closed(udp); }

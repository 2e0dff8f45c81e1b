// What the engine believes of a private channel: who may leave out the tag, and who may not. Two endpoints whose
// packets are carried by hand, so that each can be looked at, taken elsewhere, or sent again.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "engine/endpoint.hpp"
#include "engine/wire.hpp"

namespace dlcp {
namespace {

dlcp_address address(char name, bool is_trusted) {
    dlcp_address out{};
    out.bytes[0] = static_cast<std::uint8_t>(name);
    out.length = 1;
    out.flags = is_trusted ? DLCP_ADDRESS_TRUSTED : 0;
    return out;
}

// A packet on its way.
struct Carried {
    std::vector<std::uint8_t> bytes;
    dlcp_address to{};
    bool tagged = false;
    wire::Type type = wire::Type::data;
};

EndpointConfig config_for(std::uint32_t rank) {
    EndpointConfig config;
    config.rank = rank;
    config.job_key.emplace();
    config.job_key->fill(0x42);
    config.peer_timeout = seconds(1);
    return config;
}

// Ranks 0 and 1. A host is known by its network address ('a', 'b') and, at the other host, by its channel ('A', 'B').
struct Net {
    explicit Net(const std::function<void(EndpointConfig&)>& change = [](EndpointConfig&) {}) {
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            EndpointConfig config = config_for(rank);
            change(config);
            endpoints.push_back(std::make_unique<Endpoint>(config, rank + 1, now));
        }
    }
    Endpoint& operator[](std::uint32_t rank) { return *endpoints[rank]; }

    void connect(std::uint32_t rank, bool by_channel) {
        const char name = static_cast<char>((by_channel ? 'A' : 'a') + (1 - rank));
        REQUIRE(endpoints[rank]->connect(now, 1 - rank, address(name, by_channel)).error == CommandError::none);
    }
    // What `rank` has to send now.
    std::vector<Carried> take(std::uint32_t rank) {
        std::vector<Carried> out;
        std::vector<std::uint8_t> heads(std::size_t{64} * DLCP_HEAD_CAPACITY);
        for (;;) {
            std::array<dlcp_packet, 64> slots{};
            for (std::size_t i = 0; i < slots.size(); ++i) slots[i].head = heads.data() + i * DLCP_HEAD_CAPACITY;
            const std::size_t n = endpoints[rank]->poll_transmit(now, slots);
            if (n == 0) return out;
            for (std::size_t i = 0; i < n; ++i) {
                const dlcp_packet& p = slots[i];
                Carried carried;
                carried.bytes.assign(p.head, p.head + p.head_bytes);
                if (p.body != nullptr) carried.bytes.insert(carried.bytes.end(), p.body, p.body + p.body_bytes);
                carried.bytes.insert(carried.bytes.end(), p.head + p.head_bytes,
                                     p.head + p.head_bytes + p.tail_bytes);
                carried.to = *p.address;
                wire::Datagram d;
                REQUIRE(wire::parse(carried.bytes, 0, d) == wire::ParseError::none);
                carried.tagged = d.tag != nullptr;
                carried.type = d.header.type;
                out.push_back(carried);
            }
        }
    }
    void give(std::uint32_t rank, const Carried& carried, const dlcp_address& from) {
        std::vector<std::uint8_t> bytes = carried.bytes;  // the engine may open them in place
        dlcp_packet packet{};
        packet.head = bytes.data();
        packet.head_bytes = static_cast<std::uint32_t>(bytes.size());
        packet.address = &from;
        packet.flags = from.flags & DLCP_ADDRESS_TRUSTED ? DLCP_PACKET_TRUSTED : 0;
        endpoints[rank]->handle_packets(now, {&packet, 1});
    }
    // As the network and the channels do: everything arrives, and comes from where it was sent. `look` sees each packet.
    void run(int rounds = 20, const std::function<void(std::uint32_t rank, const Carried&)>& look = {}) {
        for (int i = 0; i < rounds; ++i) {
            for (std::uint32_t rank = 0; rank < 2; ++rank) {
                for (const Carried& carried : take(rank)) {
                    if (look) look(rank, carried);
                    const bool channel = (carried.to.flags & DLCP_ADDRESS_TRUSTED) != 0;
                    give(1 - rank, carried, address(static_cast<char>((channel ? 'A' : 'a') + rank), channel));
                }
            }
            now = now + microseconds(100);
            for (auto& endpoint : endpoints)
                if (endpoint->next_deadline() <= now) endpoint->handle_timer(now);
        }
    }
    bool established(std::uint32_t rank) {
        const auto peer = endpoints[rank]->find_peer(1 - rank);
        return peer && endpoints[rank]->established(*peer);
    }
    PeerId peer_of(std::uint32_t rank) { return *endpoints[rank]->find_peer(1 - rank); }
    bool at_channel(std::uint32_t rank) {
        return (endpoints[rank]->address_of(peer_of(rank))->flags & DLCP_ADDRESS_TRUSTED) != 0;
    }

    void send(std::uint32_t rank, const std::vector<std::uint8_t>& from, std::uint64_t tag = 5) {
        SendCommand command;
        command.peer = peer_of(rank);
        command.tag = tag;
        command.payload = from.data();
        command.message_bytes = static_cast<std::uint32_t>(from.size());
        REQUIRE(endpoints[rank]->send(now, command).error == CommandError::none);
    }
    void receive(std::uint32_t rank, std::vector<std::uint8_t>& to, std::uint64_t tag = 5) {
        ReceiveCommand command;
        command.peer = peer_of(rank);
        command.tag = tag;
        command.buffer = to.data();
        command.capacity_bytes = static_cast<std::uint32_t>(to.size());
        REQUIRE(endpoints[rank]->receive(now, command).error == CommandError::none);
    }
    std::vector<Event> events(std::uint32_t rank) {
        std::vector<Event> out;
        for (Event event; endpoints[rank]->poll_event(event);) out.push_back(event);
        return out;
    }
    std::size_t count(std::uint32_t rank, EventKind kind, CommandError error = CommandError::none) {
        std::size_t out = 0;
        for (const Event& event : events(rank)) out += event.kind == kind && event.error == error;
        return out;
    }

    Time now{1'000'000'000};
    std::vector<std::unique_ptr<Endpoint>> endpoints;
};

std::vector<std::uint8_t> counting(std::size_t bytes) {
    std::vector<std::uint8_t> out(bytes);
    std::iota(out.begin(), out.end(), std::uint8_t{1});
    return out;
}

}  // namespace

TEST_CASE("shm trust: on a channel hellos are tagged and nothing else is, and messages arrive") {
    for (const bool encrypt : {false, true}) {
        CAPTURE(encrypt);
        Net net([&](EndpointConfig& config) { config.encrypt = encrypt; });
        net.connect(0, true);
        net.run();
        REQUIRE(net.established(0));
        REQUIRE(net.established(1));
        const auto sent = counting(100'000);
        std::vector<std::uint8_t> got(sent.size());
        net.receive(1, got);
        net.send(0, sent);
        std::size_t data = 0;
        net.run(20, [&](std::uint32_t, const Carried& carried) {
            CHECK(carried.tagged == (carried.type == wire::Type::hello));
            data += wire::is_data(carried.type);
        });
        CHECK(got == sent);
        CHECK(net.count(0, EventKind::send_finished) == 1);
        CHECK(data == 100'000 / net[0].block_bytes(net.peer_of(0)) + 1);
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            CHECK(net[rank].counters().unauthenticated == 0);
            CHECK(net[rank].check_invariants() == "");
        }
    }
}

TEST_CASE("shm trust: what came out of a channel is refused from anywhere else") {
    Net net;
    net.connect(0, true);
    net.run();
    const auto sent = counting(1000);
    std::vector<std::uint8_t> got(sent.size());
    net.receive(1, got);
    net.send(0, sent);
    const auto packets = net.take(0);
    REQUIRE(packets.size() == 1);
    REQUIRE(!packets[0].tagged);
    net.give(1, packets[0], address('a', false));  // the network
    CHECK(net[1].counters().unauthenticated == 1);
    net.give(1, packets[0], address('X', true));  // another process of this host
    CHECK(net[1].counters().unauthenticated == 2);
    CHECK(net.count(1, EventKind::receive_finished) == 0);
    CHECK(got != sent);
    net.give(1, packets[0], address('A', true));
    CHECK(net.count(1, EventKind::receive_finished) == 1);
    CHECK(got == sent);
    net.give(1, packets[0], address('A', true));  // again: its number has been seen
    CHECK(net[1].counters().replayed == 1);
}

TEST_CASE("shm trust: on the network a session's packets keep their tags, and need them") {
    Net net;
    net.connect(0, false);
    net.run();
    REQUIRE(net.established(1));
    const auto sent = counting(1000);
    std::vector<std::uint8_t> got(sent.size());
    net.receive(1, got);
    net.send(0, sent);
    const auto packets = net.take(0);
    REQUIRE(packets.size() == 1);
    CHECK(packets[0].tagged);
    Carried bare = packets[0];
    bare.bytes.resize(bare.bytes.size() - wire::tag_bytes);
    bare.bytes[2] &= static_cast<std::uint8_t>(~wire::flag::authenticated);
    net.give(1, bare, address('a', false));
    net.give(1, bare, address('A', true));  // a channel that no hello came out of
    CHECK(net[1].counters().unauthenticated == 2);
    CHECK(got != sent);
    net.give(1, packets[0], address('a', false));
    CHECK(got == sent);
}

TEST_CASE("shm trust: a channel is believed for the session whose hello came out of it, and no other") {
    Net net([](EndpointConfig& config) { config.job_key->fill(1); });
    // Another process of this user with another key opens a channel and says hello as rank 0.
    Net stranger([](EndpointConfig& config) { config.job_key->fill(2); });
    stranger.connect(0, true);
    for (const Carried& hello : stranger.take(0)) net.give(1, hello, address('X', true));
    CHECK(net[1].counters().bad_tag == 1);
    CHECK(!net[1].find_peer(0));
    // One without a key.
    Net open([](EndpointConfig& config) { config.job_key.reset(); });
    open.connect(0, true);
    for (const Carried& hello : open.take(0)) net.give(1, hello, address('X', true));
    CHECK(net[1].counters().unauthenticated == 1);
    CHECK(!net[1].find_peer(0));
    // A true hello, recorded and played into another channel, does not move an established session there.
    net.connect(0, true);
    const auto hellos = net.take(0);
    REQUIRE(hellos.size() == 1);
    net.give(1, hellos[0], address('A', true));
    net.run();
    REQUIRE(net.established(1));
    net.give(1, hellos[0], address('X', true));
    net.run();
    CHECK(net[1].address_of(net.peer_of(1))->bytes[0] == 'A');
    const auto sent = counting(5000);
    std::vector<std::uint8_t> got(sent.size());
    net.receive(1, got);
    net.send(0, sent);
    net.run();
    CHECK(got == sent);
}

TEST_CASE("shm trust: a session is made, wherever its hellos come from, and both sides use the same way") {
    for (std::uint32_t finder = 0; finder < 2; ++finder) {
        for (const bool network_first : {false, true}) {
            CAPTURE(finder);
            CAPTURE(network_first);
            Net net;
            net.connect(1 - finder, false);
            if (network_first) net.run(1);
            net.connect(finder, true);
            net.run();
            REQUIRE(net.established(0));
            REQUIRE(net.established(1));
            for (std::uint32_t rank = 0; rank < 2; ++rank) {
                const auto sent = counting(50'000);
                std::vector<std::uint8_t> got(sent.size());
                net.receive(1 - rank, got);
                net.send(rank, sent);
                net.run();
                CHECK(got == sent);
                CHECK(net[rank].counters().lost_packets == 0);
            }
            for (std::uint32_t rank = 0; rank < 2; ++rank) {
                // A handshake that the network finishes first stays there, on both sides.
                CHECK(net.at_channel(rank) == (finder == 0 || !network_first));
                CHECK(net[rank].counters().unauthenticated == 0);
                CHECK(net[rank].check_invariants() == "");
            }
        }
    }
}

TEST_CASE("shm trust: a channel's blocks have their own size, and its buffer bounds what is in flight") {
    Net net([](EndpointConfig& config) {
        config.max_datagram_bytes = 1472;
        config.channel_datagram_bytes = 9152;
        config.channel_buffer = Bytes{200'000};
        config.initial_window = Bytes{10'000};
    });
    net.connect(0, true);
    net.run();
    CHECK(net[0].block_bytes(net.peer_of(0)) > 9000);
    CHECK(net[1].block_bytes(net.peer_of(1)) > 9000);
    const auto sent = counting(2'000'000);
    std::vector<std::uint8_t> got(sent.size());
    net.receive(1, got);
    net.send(0, sent);
    const auto first = net.take(0);  // at once, unpaced
    std::size_t bytes = 0;
    for (const Carried& carried : first) bytes += carried.bytes.size();
    CHECK(bytes <= 200'000);
    CHECK(bytes > 200'000 - 9152);
    for (const Carried& carried : first) net.give(1, carried, address('A', true));
    net.run();
    CHECK(got == sent);
    CHECK(net[0].counters().data_packets_sent == 2'000'000 / net[0].block_bytes(net.peer_of(0)) + 1);
}

TEST_CASE("shm trust: control packets fit the driver's heads, however long a channel's data packets are") {
    Net net([](EndpointConfig& config) {
        config.max_datagram_bytes = 1472;
        config.channel_datagram_bytes = 65535;
        config.max_messages_per_peer = 4096;
    });
    net.connect(0, true);
    net.run();
    CHECK(net[0].block_bytes(net.peer_of(0)) > 65000);
    // So many ends that one control packet does not hold them.
    const auto sent = counting(1);
    std::vector<std::vector<std::uint8_t>> got(2000, std::vector<std::uint8_t>(1));
    for (std::size_t i = 0; i < got.size(); ++i) net.receive(1, got[i], 100 + i);
    for (std::size_t i = 0; i < got.size(); ++i) net.send(0, sent, 100 + i);
    std::size_t longest = 0;
    net.run(20, [&](std::uint32_t, const Carried& carried) {
        if (carried.type == wire::Type::control) longest = std::max(longest, carried.bytes.size());
    });
    CHECK(longest > 1000);
    CHECK(longest <= 1472);
    CHECK(net.count(0, EventKind::send_finished) == got.size());
}

TEST_CASE(
    "shm trust: blocks that were computed just now leave a channel's sender before what waits for its turn") {
    for (const bool by_channel : {false, true}) {
        CAPTURE(by_channel);
        Net net;
        net.connect(0, by_channel);
        net.run();
        const auto waiting = counting(2'000'000), computed = counting(2'000'000);
        net.send(0, waiting, 5);
        SendCommand command;
        command.peer = net.peer_of(0);
        command.tag = 6;
        command.payload = computed.data();
        command.message_bytes = static_cast<std::uint32_t>(computed.size());
        command.gated = true;
        const auto gated = net[0].send(net.now, command);
        REQUIRE(gated.error == CommandError::none);
        REQUIRE(net[0].release_blocks(net.now, gated.value, 0, 2) == CommandError::none);
        const auto packets = net.take(0);
        REQUIRE(packets.size() > 2);
        std::vector<std::uint64_t> tags;
        for (const Carried& carried : packets) {
            wire::Datagram d;
            REQUIRE(wire::parse(carried.bytes, 0, d) == wire::ParseError::none);
            tags.push_back(d.header.tag);
        }
        CHECK(tags.front() == (by_channel ? 6 : 5));
        CHECK(std::count(tags.begin(), tags.end(), 6) == (by_channel ? 2 : 0));
    }
}

TEST_CASE("shm trust: a peer that does not get round to answering is not sent everything again") {
    Net net;
    net.connect(0, true);
    net.run();
    const auto sent = counting(100'000);
    std::vector<std::uint8_t> got(sent.size());
    net.receive(1, got);
    net.send(0, sent);
    std::vector<Carried> waiting = net.take(0);
    for (int i = 0; i < 5000; ++i) {  // half a second
        net.now = net.now + microseconds(100);
        if (net[0].next_deadline() <= net.now) net[0].handle_timer(net.now);
        for (Carried& carried : net.take(0)) waiting.push_back(std::move(carried));
    }
    CHECK(net[0].counters().lost_packets == 0);
    CHECK(net[0].counters().probes_sent > 1);
    CHECK(net[0].counters().probes_sent < 40);
    for (const Carried& carried : waiting) net.give(1, carried, address('A', true));
    net.run();
    CHECK(got == sent);
    CHECK(net[0].counters().repair_packets_sent == 0);
}

TEST_CASE("shm trust: what a full channel did not take is sent again") {
    Net net;
    net.connect(0, true);
    net.run();
    const auto sent = counting(300'000);
    std::vector<std::uint8_t> got(sent.size());
    net.receive(1, got);
    net.send(0, sent);
    const auto packets = net.take(0);
    for (std::size_t i = 0; i < packets.size(); ++i)
        if (i % 3 != 1 && i + 1 < packets.size())
            net.give(1, packets[i], address('A', true));  // the last is lost too
    net.run(200);
    CHECK(got == sent);
    CHECK(net.count(0, EventKind::send_finished) == 1);
}

TEST_CASE("shm trust: word that the process has gone ends what is under way with it, and only that") {
    Net net;
    net.connect(0, true);
    net.run();
    net.events(0);
    std::vector<std::uint8_t> got(100);
    net.receive(0, got);
    const auto gone = [&](const dlcp_address& from) {
        dlcp_packet word{};
        word.address = &from;
        word.flags = DLCP_PACKET_TRUSTED | DLCP_PACKET_GONE;
        net[0].handle_packets(net.now, {&word, 1});
    };
    gone(address('X', true));
    CHECK(net.established(0));
    gone(address('B', true));
    CHECK(!net.established(0));
    const auto events = net.events(0);
    REQUIRE(events.size() == 2);
    CHECK(events[0].kind == EventKind::receive_failed);
    CHECK(events[0].error == CommandError::peer_gone);
    CHECK(events[1].kind == EventKind::peer_down);
    CHECK(events[1].error == CommandError::peer_gone);
    gone(address('B', true));
    CHECK(net.events(0).empty());
    CHECK(net[0].check_invariants() == "");
}

}  // namespace dlcp

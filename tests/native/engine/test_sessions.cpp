// Sessions: two sides, their hellos handed over by hand.
#include <doctest/doctest.h>

#include <cstring>

#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

dlcp_address address_of(std::uint8_t rank) {
    dlcp_address address{};
    address.length = 1;
    address.bytes[0] = rank;
    return address;
}

struct Side : EngineParts {
    dlcp_address address;

    explicit Side(std::uint32_t rank) : EngineParts(configured_rank(rank)) {
        address = address_of(static_cast<std::uint8_t>(rank));
    }
    static EndpointConfig configured_rank(std::uint32_t rank) {
        EndpointConfig config;
        config.rank = rank;
        return config;
    }
    // The hello that is due; a copy, as the network keeps one.
    std::vector<std::uint8_t> hello(Time now, Peer& peer) {
        Slots slots(1);
        if (!sessions.write_due_hello(now, peer, slots.packets[0])) return {};
        return {slots.packets[0].head, slots.packets[0].head + slots.packets[0].head_bytes};
    }
    void hear(Time now, std::vector<std::uint8_t> bytes, const dlcp_address& from) {
        dlcp_packet packet{};
        packet.head = bytes.data();
        packet.head_bytes = static_cast<std::uint32_t>(bytes.size());
        packet.address = &from;
        wire::Datagram datagram;
        REQUIRE(wire::parse({packet.head, packet.head_bytes}, 0, datagram) == wire::ParseError::none);
        sessions.handle_hello(now, now, packet, datagram);
    }
};

TEST_CASE("sessions: two hellos establish the side that asks, and a third the side that answers") {
    Side one(1), two(2);
    Peer& to_two = one.sessions.new_peer(2, two.address);
    one.sessions.start_if_idle(Time{0}, to_two);
    const std::vector<std::uint8_t> first = one.hello(Time{0}, to_two);
    two.hear(Time{10}, first, one.address);
    REQUIRE(two.shared.peers.size() == 1);
    Peer& to_one = *two.shared.peers[0];
    CHECK(to_one.learned);
    CHECK_FALSE(to_one.up());  // it may be a replay
    one.hear(Time{20}, two.hello(Time{10}, to_one), two.address);
    CHECK(to_two.up());
    CHECK(to_two.rtt.latest() == Duration{20});
    two.hear(Time{30}, one.hello(Time{20}, to_two), one.address);
    CHECK(to_one.up());
    CHECK(one.events().at(0).kind == EventKind::peer_established);
    CHECK(one.hello(Time{40}, to_two).empty());  // answers are not answered

    // The first hello again, by somebody who has kept it: an answer, and nothing else.
    const std::uint64_t session = to_one.handshake.own_session;
    two.hear(Time{50}, first, one.address);
    CHECK(to_one.up());
    CHECK(to_one.handshake.own_session == session);
}

TEST_CASE("sessions: a hello to another rank, or of this one's own, is foreign") {
    Side one(1), two(2), three(3);
    Peer& to_two = one.sessions.new_peer(2, two.address);
    one.sessions.start_if_idle(Time{0}, to_two);
    const std::vector<std::uint8_t> hello = one.hello(Time{0}, to_two);
    three.hear(Time{10}, hello, one.address);
    CHECK(three.shared.peers.empty());
    CHECK(three.shared.counters.foreign_job == 1);
    one.hear(Time{10}, hello, one.address);
    CHECK(one.shared.counters.foreign_job == 1);
}

TEST_CASE("sessions: a peer that restarts is adopted only when it proves that it has heard the new id") {
    Side one(1), two(2), again(2);
    Peer& to_two = one.sessions.new_peer(2, two.address);
    one.sessions.start_if_idle(Time{0}, to_two);
    two.hear(Time{10}, one.hello(Time{0}, to_two), one.address);
    one.hear(Time{20}, two.hello(Time{10}, *two.shared.peers[0]), two.address);
    REQUIRE(to_two.up());
    one.events();
    one.hello(Time{20}, to_two);

    Peer& from_again = again.sessions.new_peer(1, one.address);
    again.shared.random.next();  // another process draws other ids
    from_again.handshake.own_session ^= std::uint64_t{1} << 40;
    again.sessions.start_if_idle(Time{100}, from_again);
    one.hear(Time{110}, again.hello(Time{100}, from_again), again.address);
    CHECK(one.events().empty());  // so far anybody could have sent it
    again.hear(Time{120}, one.hello(Time{110}, to_two), one.address);
    REQUIRE(from_again.up());
    one.hear(Time{130}, again.hello(Time{120}, from_again), again.address);
    const std::vector<Event> events = one.events();
    REQUIRE(events.size() == 2);
    CHECK(events[0].kind == EventKind::peer_down);
    CHECK(events[0].error == CommandError::peer_restarted);
    CHECK(events[1].kind == EventKind::peer_established);
}

}  // namespace
}  // namespace dlcp::test

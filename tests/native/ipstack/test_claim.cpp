// Whether an address is free: what is asked at the start, who objects, and what is not said before it is known.
#include "ipstack_link.hpp"

namespace dlcp::ipstack {
namespace {

// Lets 60 ms pass at both ends, in steps of one.
void settle(Link& link) {
    for (int i = 0; i < 60; ++i) {
        link.exchange();
        link.step(milliseconds(1));
        if (link.peer->next_deadline() <= link.now) link.peer->handle_timer(link.now);
    }
    link.exchange();
}
// The peer has another card and our address.
void make_rival(Link& link) {
    InterfaceConfig rival = link.config;
    rival.mac = mac(66);
    link.peer = std::make_unique<Interface>(rival);
}

}  // namespace

TEST_CASE("ipstack claim: nobody objects to three questions, then the address is announced") {
    for (const bool is_v6 : {false, true}) {
        CAPTURE(is_v6);
        Link link(is_v6);
        link.own.claim(link.now);
        const Time start = link.now;
        std::vector<std::int64_t> at;
        while (link.own.address_state() == AddressState::probing) {
            for (const Frame& frame : all_frames(link.own)) {
                if (is_listener_report(frame)) continue;
                at.push_back((link.now - start).value);
                // In nobody's name.
                const std::uint8_t* const source = frame.data() + (is_v6 ? 22 : 28);
                CHECK(std::all_of(source, source + (is_v6 ? 16 : 4), [](std::uint8_t byte) { return byte == 0; }));
            }
            REQUIRE(link.own.next_deadline() > link.now);
            link.step(link.own.next_deadline() - link.now);
        }
        CHECK(at == std::vector<std::int64_t>{0, milliseconds(20).value, milliseconds(40).value});
        CHECK(link.now == start + milliseconds(60));
        CHECK(link.own.address_state() == AddressState::ours);
        CHECK(link.own.counters().tx_address_probe_frames == 3);
        CHECK(all_frames(link.own).size() == 1);
        link.step(seconds(2));
        CHECK(all_frames(link.own).size() == (is_v6 ? 2 : 1));  // and the second report of the group
        CHECK(link.own.next_deadline() == time_never);
        CHECK(link.events().empty());
    }
}

TEST_CASE("ipstack claim: an address that somebody has is taken, and who has it is told") {
    for (const bool is_v6 : {false, true}) {
        CAPTURE(is_v6);
        Link link(is_v6);
        make_rival(link);
        link.own.claim(link.now);
        link.exchange();
        CHECK(link.own.address_state() == AddressState::taken);
        CHECK(link.own.address_holder() == mac(66));
        CHECK(link.events() == std::vector{Kind::address_taken});
        CHECK(link.own.counters().address_conflict_frames == 1);
        // The holder's answer is all that it notices.
        CHECK(link.peer->counters().address_conflict_frames == 0);
        CHECK(link.peer->address_state() == AddressState::ours);
        // Nothing is said any more, asked or not.
        link.own.announce(link.now);
        for (const Frame& frame : all_frames(link.own)) CHECK(is_listener_report(frame));
        Interface asker(config_of_host(3, is_v6));
        asker.reach(link.now, {link.config.address, 7000});
        for (const Frame& frame : all_frames(asker)) receive(link.own, link.now, frame);
        CHECK(all_frames(link.own).empty());
        const Destination* const destination = link.reach(3);
        for (int i = 0; i < 50; ++i) link.step(milliseconds(100));
        for (const Frame& frame : all_frames(link.own)) CHECK(is_listener_report(frame));
        CHECK_FALSE(destination->resolved);
        CHECK(link.events() == std::vector{Kind::neighbour_lost});
    }
}

TEST_CASE("ipstack claim: two that claim the same address at once both leave it") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        make_rival(link);
        link.peer->claim(link.now);
        link.own.claim(link.now);
        settle(link);
        CHECK(link.own.address_state() == AddressState::taken);
        CHECK(link.peer->address_state() == AddressState::taken);
        CHECK(link.own.address_holder() == mac(66));
        CHECK(link.peer->address_holder() == link.config.mac);
    }
}

TEST_CASE("ipstack claim: until it is known nobody is answered or asked from the address; then all are") {
    for (const bool is_v6 : {false, true}) {
        CAPTURE(is_v6);
        Link link(is_v6);
        link.own.claim(link.now);
        all_frames(link.own);
        // A neighbour asks for us, by ARP or solicitation, and by echo.
        link.peer->reach(link.now, link.address_of(1));
        for (const Frame& frame : all_frames(*link.peer)) link.pass(link.own, frame);
        const std::uint8_t type = is_v6 ? icmpv6_echo_request : icmp_echo_request;
        receive(link.own, link.now,
                icmp_frame(config_of_host(2, is_v6), link.config.address, link.config.mac,
                           {type, 0, 0, 0, 0, 0, 0, 0}));
        const Destination* const destination = link.reach();
        CHECK(all_frames(link.own).empty());
        settle(link);
        CHECK(link.own.address_state() == AddressState::ours);
        CHECK(link.own.counters().address_conflict_frames == 0);
        CHECK(destination->resolved);
        CHECK(link.peer->mac_of(link.config.address) == link.config.mac);
    }
}

TEST_CASE("ipstack claim: our own questions, sent back to us, take nothing away") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.own.claim(link.now);
        for (int i = 0; i < 60; ++i) {
            for (const Frame& frame : all_frames(link.own)) receive(link.own, link.now, frame);
            link.step(milliseconds(1));
        }
        CHECK(link.own.address_state() == AddressState::ours);
        CHECK(link.own.counters().address_conflict_frames == 0);
    }
}

TEST_CASE("ipstack claim: who looks for another address is no rival") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.peer->claim(link.now);
        link.own.claim(link.now);
        settle(link);
        CHECK(link.own.address_state() == AddressState::ours);
        CHECK(link.peer->address_state() == AddressState::ours);
    }
}

TEST_CASE("ipstack claim: a link that comes back does not interrupt the questions") {
    Link link(false);
    link.own.claim(link.now);
    link.step(milliseconds(10));
    link.own.announce(link.now);
    CHECK(link.own.address_state() == AddressState::probing);
    settle(link);
    CHECK(link.own.counters().tx_address_probe_frames == 3);
    CHECK(link.own.address_state() == AddressState::ours);
}

TEST_CASE("ipstack claim: one who claims what another uses does not disturb it") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.own.claim(link.now);
        settle(link);
        make_rival(link);
        link.peer->claim(link.now);
        settle(link);
        CHECK(link.own.address_state() == AddressState::ours);
        CHECK(link.peer->address_state() == AddressState::taken);
        CHECK(link.peer->address_holder() == link.config.mac);
        CHECK(link.events().empty());
    }
}

}  // namespace dlcp::ipstack

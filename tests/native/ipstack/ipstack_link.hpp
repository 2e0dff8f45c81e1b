// An interface under test and one peer, over a link that loses nothing, on a virtual clock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ipstack_support.hpp"

namespace dlcp::ipstack {

using Kind = InterfaceEvent::Kind;

constexpr MacAddress mac(std::uint8_t last) { return {2, 0, 0, 0, 0, last}; }

// An interface, and a peer that answers when it is let.
struct Link {
    explicit Link(bool is_v6, std::function<void(InterfaceConfig&)> change = {})
        : is_v6(is_v6),
          config([&] {
              InterfaceConfig out = config_of_host(1, is_v6);
              if (change) change(out);
              return out;
          }()),
          own(config),
          peer(std::make_unique<Interface>(config_of_host(2, is_v6))) {}

    UdpAddress address_of(unsigned host) const { return {config_of_host(host, is_v6).address, 7000}; }
    const Destination* reach(unsigned host = 2) { return own.reach(now, address_of(host)); }
    // Requests that are out now, and whether each is for one MAC alone.
    std::vector<bool> requests() {
        std::vector<bool> out;
        for (const Frame& frame : all_frames(own)) {
            out.push_back((frame[0] & 1) == 0);
        }
        return out;
    }
    void pass(Interface& to, const Frame& frame) {
        if (card_hears(to, frame)) receive(to, now, frame);
    }
    // Frames of both go to and fro until there are none.
    void exchange() {
        for (bool more = true; more;) {
            more = false;
            for (const Frame& frame : all_frames(own)) pass(*peer, frame), more = true;
            for (const Frame& frame : all_frames(*peer)) pass(own, frame), more = true;
        }
    }
    // The peer has another card from now on, and says so.
    void replace_card(std::uint8_t last_byte) {
        InterfaceConfig changed = config_of_host(2, is_v6);
        changed.mac = mac(last_byte);
        peer = std::make_unique<Interface>(changed);
        peer->announce(now);
        exchange();
    }
    void step(Duration time) {
        now = now + time;
        if (own.next_deadline() <= now) own.handle_timer(now);
    }
    Frame datagram_from_peer() {
        const Destination* const to = peer->reach(now, {config.address, config.port});
        REQUIRE(to->resolved);
        return datagram_to(*to, {.source_port = 7000}, {1, 2, 3});
    }
    std::vector<Kind> events() {
        std::vector<Kind> out;
        while (const auto event = own.next_event()) out.push_back(event->kind);
        return out;
    }
    bool has_mac(const Destination* destination, std::uint8_t last_byte) {
        return destination->resolved && destination->headers[5] == last_byte;
    }

    bool is_v6;
    InterfaceConfig config;
    Time now{1'000'000};
    Interface own;
    std::unique_ptr<Interface> peer;
};

}  // namespace dlcp::ipstack

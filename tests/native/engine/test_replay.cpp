// Packets that are captured and sent again: nothing of them enters, and nobody counts as alive by them.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "engine/wire.hpp"
#include "native/engine/captured_pair.hpp"

namespace dlcp {
namespace {

using test::Captured;
using test::Datagram;

EndpointConfig keyed() {
    EndpointConfig config;
    config.job_key.emplace();
    config.job_key->fill(0x42);
    config.peer_timeout = seconds(1);
    return config;
}

bool is_data(const Datagram& bytes) {
    wire::Datagram d;
    return wire::parse(bytes, 0, d) == wire::ParseError::none && wire::is_data(d.header.type);
}

TEST_CASE("replay: a packet that was held keeps nobody alive") {
    EndpointConfig config = keyed();
    config.max_unexpected = Bytes{0};  // nothing that nobody asked for is kept: it is held
    Captured pair(config);
    pair.talk(1);
    REQUIRE(pair.endpoints[0]->established(pair.peers[0]));
    const std::vector<std::uint8_t> payload(10'000, 1);
    SendCommand send;
    send.peer = pair.peers[1];
    send.tag = 5;
    send.payload = payload.data();
    send.message_bytes = static_cast<std::uint32_t>(payload.size());
    REQUIRE(pair.endpoints[1]->send(pair.now, send));
    Datagram held;
    for (const Datagram& bytes : pair.talk(1))
        if (is_data(bytes)) held = bytes;
    REQUIRE(!held.empty());
    REQUIRE(pair.endpoints[0]->counters().held_packets > 0);
    const Time heard = pair.endpoints[0]->peer_statistics(pair.peers[0]).last_heard;

    // The sender is dead from here on. The receiver waits for another message, and somebody repeats what was held.
    std::array<std::uint8_t, 16> buffer{};
    ReceiveCommand receive;
    receive.peer = pair.peers[0];
    receive.tag = 6;
    receive.buffer = buffer.data();
    receive.capacity_bytes = buffer.size();
    REQUIRE(pair.endpoints[0]->receive(pair.now, receive));
    const std::uint64_t held_before = pair.endpoints[0]->counters().held_packets;
    bool failed = false;
    for (int i = 0; i < 200 && !failed; ++i) {
        pair.now = pair.now + milliseconds(10);
        pair.give(0, held);
        while (pair.endpoints[0]->next_deadline() <= pair.now) pair.endpoints[0]->handle_timer(pair.now);
        pair.take(0);
        for (Event event; pair.endpoints[0]->poll_event(event);) {
            if (event.kind != EventKind::receive_failed) continue;
            failed = true;
            CHECK(event.error == CommandError::peer_timeout);
        }
    }
    CHECK(failed);
    CHECK(pair.endpoints[0]->peer_statistics(pair.peers[0]).last_heard == heard);
    CHECK(pair.endpoints[0]->counters().replayed > 0);
    CHECK(pair.endpoints[0]->counters().held_packets == held_before);
}

}  // namespace
}  // namespace dlcp

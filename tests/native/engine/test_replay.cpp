// Packets that are captured and sent again: nothing of them enters, and nobody counts as alive by them.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/endpoint.hpp"
#include "engine/wire.hpp"
#include "support/native/virtual_network.hpp"

namespace dlcp {
namespace {

using Datagram = std::vector<std::uint8_t>;

// Two endpoints by hand, so that a test holds every packet.
class Captured {
public:
    explicit Captured(EndpointConfig config) {
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            config.rank = rank;
            endpoints[rank] = std::make_unique<Endpoint>(config, rank + 1, now);
        }
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            const auto peer = endpoints[rank]->connect(now, 1 - rank, VirtualNetwork::address(1 - rank));
            REQUIRE(peer);
            peers[rank] = peer.value;
        }
    }
    // What `rank` has to send now, as it would be on the wire.
    std::vector<Datagram> take(std::uint32_t rank) {
        std::vector<Datagram> out;
        const std::unique_ptr<std::uint8_t[]> head(new std::uint8_t[DLCP_HEAD_CAPACITY]);
        for (;;) {
            dlcp_packet packet{};
            packet.head = head.get();
            if (endpoints[rank]->poll_transmit(now, {&packet, 1}) == 0) return out;
            Datagram& bytes = out.emplace_back(packet.head, packet.head + packet.head_bytes);
            if (packet.body) bytes.insert(bytes.end(), packet.body, packet.body + packet.body_bytes);
            const std::uint8_t* tail = packet.head + packet.head_bytes;
            bytes.insert(bytes.end(), tail, tail + packet.tail_bytes);
        }
    }
    void give(std::uint32_t rank, Datagram bytes) {
        const dlcp_address from = VirtualNetwork::address(1 - rank);
        dlcp_packet packet{};
        packet.head = bytes.data();
        packet.head_bytes = static_cast<std::uint32_t>(bytes.size());
        packet.address = &from;
        endpoints[rank]->handle_packets(now, {&packet, 1});
    }
    // Lets both talk until both are quiet; what `watched` sent is returned.
    std::vector<Datagram> talk(std::uint32_t watched) {
        std::vector<Datagram> seen;
        for (bool moved = true; moved;) {
            moved = false;
            for (std::uint32_t rank = 0; rank < 2; ++rank) {
                for (Datagram& bytes : take(rank)) {
                    moved = true;
                    if (rank == watched) seen.push_back(bytes);
                    give(1 - rank, std::move(bytes));
                }
            }
        }
        return seen;
    }

    Time now{seconds(1).value};
    std::array<std::unique_ptr<Endpoint>, 2> endpoints;
    std::array<PeerId, 2> peers;
};

EndpointConfig keyed() {
    EndpointConfig config;
    config.job_key.emplace();
    config.job_key->fill(0x42);
    config.peer_timeout = seconds(1);
    return config;
}

bool is_data(const Datagram& bytes) {
    wire::Datagram d;
    return wire::parse(bytes, 0, d) == wire::ParseError::none && d.header.type == wire::Type::data;
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

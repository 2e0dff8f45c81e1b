// Packets of a run laid end to end in a driver's heads: the same bytes as otherwise, in one piece of memory.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "native/engine/captured_pair.hpp"
#include "native/engine/pair_scenario.hpp"

namespace dlcp {
namespace {

using namespace test;

constexpr std::size_t slots_lent = 32;

struct Sent {
    std::vector<Datagram> datagrams;
    std::size_t in_place = 0;  // behind the packet before, with no gap
};

// What an endpoint sends of one message in one look.
Sent send_first_packets(const EndpointConfig& config, std::uint8_t slot_flags, std::uint32_t message_bytes) {
    Captured pair(config);
    pair.talk(0);
    REQUIRE(pair.endpoints[0]->established(pair.peers[0]));
    std::vector<std::uint8_t> payload(message_bytes);
    std::iota(payload.begin(), payload.end(), std::uint8_t{0});
    SendCommand send;
    send.peer = pair.peers[0];
    send.tag = 5;
    send.payload = payload.data();
    send.message_bytes = message_bytes;
    REQUIRE(pair.endpoints[0]->send(pair.now, send));

    const std::unique_ptr<std::uint8_t[]> memory(new std::uint8_t[slots_lent * DLCP_HEAD_CAPACITY]);
    std::array<dlcp_packet, slots_lent> slots{};
    for (std::size_t i = 0; i < slots_lent; ++i) {
        slots[i].head = memory.get() + i * DLCP_HEAD_CAPACITY;
        slots[i].flags = slot_flags;
    }
    const std::size_t count = pair.endpoints[0]->poll_transmit(pair.now, slots);
    Sent sent;
    for (std::size_t i = 0; i < count; ++i) {
        const dlcp_packet& packet = slots[i];
        const std::uint8_t* const tail = packet.head + packet.head_bytes;
        Datagram& bytes = sent.datagrams.emplace_back(packet.head, packet.head + packet.head_bytes);
        if (packet.body != nullptr) bytes.insert(bytes.end(), packet.body, packet.body + packet.body_bytes);
        bytes.insert(bytes.end(), tail, tail + packet.tail_bytes);
        CHECK((packet.flags & DLCP_PACKET_ADJOINS) == 0);
        if (i == 0) continue;
        const dlcp_packet& before = slots[i - 1];
        sent.in_place += before.head + before.head_bytes + before.tail_bytes == packet.head;
    }
    return sent;
}

TEST_CASE("adjoining heads: the packets of a run are the same bytes, end to end") {
    EndpointConfig keyed = keyed_config();
    EndpointConfig encrypted = keyed;
    encrypted.encrypt = true;
    for (EndpointConfig config : {plain_config(), keyed, encrypted}) {
        CAPTURE(config.encrypt);
        config.max_datagram_bytes = 1472;
        config.run_packets = slots_lent;
        config.initial_window = Bytes{100'000};
        for (const std::uint32_t message_bytes : {1u, 1000u, 20'000u, 43'210u}) {
            CAPTURE(message_bytes);
            const Sent apart = send_first_packets(config, 0, message_bytes);
            const Sent adjoining = send_first_packets(config, DLCP_PACKET_ADJOINS, message_bytes);
            CHECK(apart.in_place == 0);
            CHECK(adjoining.datagrams == apart.datagrams);
            CHECK(adjoining.in_place + 1 == adjoining.datagrams.size());
        }
    }
}

}  // namespace
}  // namespace dlcp

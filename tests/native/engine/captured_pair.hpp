// Two endpoints by hand, so that a test holds every packet.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "engine/endpoint.hpp"
#include "support/native/virtual_network.hpp"

namespace dlcp::test {

using Datagram = std::vector<std::uint8_t>;

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

}  // namespace dlcp::test

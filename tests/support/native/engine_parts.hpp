// The parts of an endpoint without the endpoint: no packets, no handshake, a session with each peer that is asked for.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "engine/congestion/controllers.hpp"
#include "engine/control_writer.hpp"
#include "engine/data_writer.hpp"
#include "engine/incoming.hpp"
#include "engine/liveness.hpp"
#include "engine/outgoing.hpp"
#include "engine/pieces.hpp"
#include "engine/receiver_credit.hpp"
#include "engine/recovery.hpp"
#include "engine/sessions.hpp"

namespace dlcp::test {

// Packets with memory of their own, for writers.
struct Slots {
    std::vector<dlcp_packet> packets;
    std::unique_ptr<std::uint8_t[]> memory;

    explicit Slots(std::size_t count) : packets(count), memory(new std::uint8_t[count * DLCP_HEAD_CAPACITY]) {
        for (std::size_t i = 0; i < count; ++i) packets[i].head = memory.get() + i * DLCP_HEAD_CAPACITY;
    }
    std::span<dlcp_packet> all() { return packets; }
    // As the receiver reads it: header, payload behind it or virtual. Only in builds without a key.
    wire::Datagram read(std::size_t i) const {
        wire::Datagram datagram;
        const dlcp_packet& packet = packets[i];
        const std::uint32_t virtual_bytes = packet.flags & DLCP_PACKET_VIRTUAL ? packet.body_bytes : 0;
        const auto error = wire::parse({packet.head, packet.head_bytes}, virtual_bytes, datagram);
        if (error != wire::ParseError::none) std::abort();
        return datagram;
    }
};

struct EngineParts {
    static EndpointConfig configured(std::uint32_t max_messages_per_peer) {
        EndpointConfig config;
        config.max_messages_per_peer = max_messages_per_peer;
        return config;
    }
    explicit EngineParts(const EndpointConfig& config = {}) : shared(config, 1) {}

    SharedState shared;
    Liveness liveness{shared};
    ReceiverCredit credit{shared};
    Pieces pieces{shared};
    dlcp::Outgoing outgoing{shared, liveness};
    dlcp::Incoming incoming{shared, liveness, credit};
    Recovery recovery{shared, liveness, outgoing, pieces, credit};
    Sessions sessions{shared, liveness, outgoing, incoming, pieces, credit};
    ControlWriter control{shared, recovery, sessions, credit};
    DataWriter data{shared, liveness, outgoing, pieces, credit};

    // A peer without a session, and one with.
    Peer& add_peer(std::uint32_t rank) {
        auto peer = std::make_unique<Peer>();
        peer->index = static_cast<std::uint32_t>(shared.peers.size());
        peer->rank = rank;
        peer->datagram_bytes = shared.config.max_datagram_bytes;
        peer->block_bytes = peer->former_block_bytes = shared.own_block_bytes();
        shared.peers.push_back(std::move(peer));
        return *shared.peers.back();
    }
    Peer& add_established(std::uint32_t rank) {
        Peer& peer = add_peer(rank);
        peer.state.apply(PeerState::Event::prove);
        SenderState& sender = peer.session.emplace().sender;
        sender.lane_acked_end.assign(std::size_t{shared.config.paths} * wire::traffic_classes, 0);
        sender.paths.reset(shared.config.paths);
        sender.congestion = congestion_controllers[static_cast<std::size_t>(shared.config.congestion)].make(
            shared.config, peer.datagram_bytes, Duration{0});
        sender.credit = Bytes{1 << 20};
        outgoing.start_all(peer);
        return peer;
    }
    // A reliable message of so many full blocks, with virtual payload; it may leave if it is the first of its tag.
    std::uint32_t send(Time now, Peer& peer, std::uint64_t tag, std::uint32_t blocks) {
        const auto [slot, error] = outgoing.add(
            now, peer, {.peer = {peer.index}, .tag = tag, .message_bytes = blocks * peer.block_bytes});
        if (error == CommandError::none && peer.up() && outgoing.first_of_tag(slot)) outgoing.enqueue(slot, false);
        return slot;
    }
    // What DataWriter does with a message's next block; the number of its packet.
    std::uint64_t leave(Time now, Peer& peer, std::uint32_t slot) {
        SenderState& sender = peer.session->sender;
        OutgoingMessage& message = shared.outgoing[slot];
        if (message.wire_id == 0) {
            message.wire_id = sender.ids.end();
            sender.ids.extend(message.wire_id);
            sender.ids[message.wire_id] = slot;
            sender.started.push_back(shared.outgoing, slot);
        }
        const OutgoingMessage::Next next = message.peek();
        message.take(next);
        if (!message.has_block_to_send()) sender.queues[message.traffic_class].remove(shared.outgoing, slot);
        ++sender.awaiting;
        sender.in_flight += Bytes{peer.datagram_bytes};
        return sender.sent.push({.sent_at = now,
                                 .message_slot = slot,
                                 .message_generation = shared.outgoing.generation(slot),
                                 .block = next.block,
                                 .bytes = peer.datagram_bytes});
    }
    // A data packet of a message from the peer; false: there was no room for it.
    bool arrive(Time now, Peer& peer, std::uint32_t wire_id, std::uint64_t tag, std::uint32_t blocks,
                std::uint32_t block) {
        wire::Datagram datagram;
        wire::Header& header = datagram.header;
        header.type = wire::Type::data;
        header.flags = wire::flag::critical;
        header.message_id = wire_id;
        header.tag = tag;
        header.block_bytes = peer.block_bytes;
        header.message_bytes = blocks * peer.block_bytes;
        header.critical_blocks = blocks;
        header.block_index = block;
        header.payload_bytes = peer.block_bytes;
        return incoming.handle_data(now, now, peer, datagram);
    }
    // The events since the last call.
    std::vector<Event> events() {
        std::vector<Event> found;
        for (; !shared.events.empty(); shared.events.pop()) found.push_back(shared.events.front());
        return found;
    }
};

}  // namespace dlcp::test

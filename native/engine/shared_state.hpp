// What the parts of an endpoint share: its configuration, its peers, its messages, and the queues in which peers wait for
// a part. Nothing is decided here; each part's header says what it does with these, and which other parts it knows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/config.hpp"
#include "engine/counters.hpp"
#include "engine/deadline_heap.hpp"
#include "engine/event.hpp"
#include "engine/message_command.hpp"
#include "engine/peer.hpp"
#include "engine/random.hpp"
#include "engine/ring_queue.hpp"
#include "engine/run_length.hpp"
#include "engine/slab.hpp"
#include "engine/units.hpp"

namespace dlcp {

struct SharedState {
    static constexpr std::uint32_t incoming_bit = 1u << 31;  // in MessageId::slot: which table

    SharedState(const EndpointConfig& configured, std::uint64_t seed)
        : config(configured), sprayed(configured.switches_spray), random(seed) {}

    EndpointConfig config;
    Counters counters;
    RecentRate send_rate;
    Sprayed sprayed;  // what the network does with this endpoint's peers' packets, and so with its own
    std::vector<std::unique_ptr<Peer>> peers;  // by PeerId
    Random random;
    bool closed = false;
    std::uint8_t key_epoch = 0;
    Slab<OutgoingMessage> outgoing;
    Slab<IncomingMessage> incoming;
    RingQueue<Event> events;
    RingQueue<std::uint32_t> control_queue;  // peers that owe a control packet or a hello
    std::array<RingQueue<std::uint32_t>, wire::traffic_classes> ready;  // peers that may send, by class
    std::uint8_t ready_classes = 0;  // bit c set: ready[c] may hold peers; clear: it is empty
    DeadlineHeap peer_timers;
    DeadlineHeap message_timers;  // of incoming slots: settling and deadlines

    Peer* peer_at(PeerId id) { return id.value < peers.size() ? peers[id.value].get() : nullptr; }
    const Peer* peer_at(PeerId id) const { return id.value < peers.size() ? peers[id.value].get() : nullptr; }
    Peer* find_rank(std::uint32_t rank);

    std::uint16_t block_bytes_for(std::uint16_t datagram_bytes) const;
    std::uint16_t own_block_bytes() const { return block_bytes_for(config.max_datagram_bytes); }
    // The block of a message in whole units, where one without has `block_bytes`.
    static std::uint16_t in_units(std::uint16_t block_bytes, std::uint16_t unit_bytes) {
        return static_cast<std::uint16_t>(block_bytes / unit_bytes * unit_bytes);
    }

    // The messages that the application may still name. A released message's slot may live on until the peer knows the
    // end.
    bool known_outgoing(std::uint32_t slot, std::uint32_t generation) const {
        return outgoing.in_use(slot, generation) && !outgoing[slot].released;
    }
    bool known_incoming(std::uint32_t slot, std::uint32_t generation) const {
        return incoming.in_use(slot, generation) && !incoming[slot].released;
    }
    MessageId outgoing_id(std::uint32_t slot) const { return {slot, outgoing.generation(slot)}; }
    MessageId incoming_id(std::uint32_t slot) const { return {slot | incoming_bit, incoming.generation(slot)}; }
    // How far apart the wire ids in use with one peer may lie: the number of messages that each side remembers of the
    // other.
    std::uint32_t id_span() const {
        constexpr std::uint32_t least = 1024;
        return std::max(2 * config.max_messages_per_peer, least);
    }

    void push_event(const Event& event) { events.push(event); }
    void push_bound(Bound bound, CommandError error, PeerId peer, std::uint64_t tag = 0) {
        push_event({.kind = EventKind::bound_reached,
                    .error = error,
                    .peer = peer,
                    .tag = tag,
                    .value = static_cast<std::uint32_t>(bound)});
    }

    // The peer is owed a control packet or a hello.
    void queue_control(Peer& peer) {
        if (peer.control_queued) return;
        peer.control_queued = true;
        control_queue.push(peer.index);
    }
    // Puts a peer back into the ready queues of the classes in which it has work. Call after anything that may let it
    // send: new work, window, credit, pacing time.
    void refresh(Peer& peer);
    // Sets the peer's timer to the next of its times. Call after a change of any.
    void arm(Peer& peer);
};

}  // namespace dlcp

// Brings what calls will touch into the cache before them.
//
// For a caller that has many endpoints and knows its next calls (the simulator): between two calls an endpoint's memory
// has left the cache, and a call then waits some twenty times for a line of it. Each step follows one pointer further,
// through what the step before has brought, for all calls before the next step: so the waits are one per step.
#include "engine/endpoint.hpp"
#include "engine/prefetch.hpp"

namespace dlcp {

void Endpoint::foresee(std::span<Foresight> calls) {
    for (const Foresight& call : calls) call.endpoint->foresee_own(call.head != nullptr);
    for (const Foresight& call : calls) call.endpoint->foresee_tables(call.head != nullptr);
    for (Foresight& call : calls) call.endpoint->foresee_peer(call);
    for (Foresight& call : calls)
        if (call.peer != nullptr) foresee_session(call);
    for (Foresight& call : calls)
        if (call.peer != nullptr) call.endpoint->foresee_places(call);
    for (Foresight& call : calls)
        if (call.head != nullptr && call.peer != nullptr) call.endpoint->foresee_message(call);
    for (const Foresight& call : calls)
        if (call.head != nullptr && call.peer != nullptr) call.endpoint->foresee_block(call);
}

inline void Endpoint::foresee_own(bool arrival) const {
    prefetch_lines(this, &shared_.config, &shared_.config + 1);
    prefetch(&shared_.peers);
    prefetch_lines(this, &shared_.ready_classes, &shared_.message_timers + 1);
    if (arrival) {
        prefetch_lines(this, &shared_.counters.data_packets_received, &shared_.counters.duplicate_blocks);
        prefetch_lines(this, &shared_.incoming, &shared_.incoming + 1);
        arrivals_.prefetch();
    } else {
        prefetch_lines(this, &shared_.counters.data_packets_sent, &shared_.counters.control_packets_sent);
        prefetch_lines(this, &shared_.outgoing, &shared_.outgoing + 1);
        prefetch_lines(this, &shared_.control_queue, &shared_.ready[1]);
        pieces_.prefetch();
    }
}

inline void Endpoint::foresee_tables(bool arrival) const {
    prefetch(shared_.peers.data());
    shared_.peer_timers.prefetch();
    if (arrival) {
        shared_.incoming.prefetch_table();
        arrivals_.prefetch_table();
    } else if (shared_.ready_classes != 0) {
        shared_.outgoing.prefetch_table();
        prefetch(&shared_.ready[next_class()].front());
    }
}

// The peer that the call is about, as far as can be told.
inline void Endpoint::foresee_peer(Foresight& call) const {
    call.peer = nullptr;
    std::uint32_t index = 0;
    if (call.head != nullptr) {
        call.glance = wire::glance_at(call.head);
        index = call.glance.session & 0xffff;  // find_session
    } else if (shared_.ready_classes != 0 && !shared_.ready[next_class()].empty()) {
        call.glance.traffic_class = static_cast<std::uint8_t>(next_class());
        index = shared_.ready[next_class()].front();
    } else {
        return;
    }
    if (index >= shared_.peers.size()) return;
    const Peer& peer = *(call.peer = shared_.peers[index].get());
    prefetch_lines(&peer, &peer.index, &peer.handshake.next_number);
    prefetch_lines(&peer, &peer.failing, &peer + 1);
}

inline const SendQueue& Endpoint::queue_of(const Foresight& call) {
    return call.peer->session->sender.queues[call.glance.traffic_class];
}

inline void Endpoint::foresee_session(Foresight& call) {
    const Peer& peer = *call.peer;
    if (!peer.session) {
        call.peer = nullptr;
        return;
    }
    const Session& session = *peer.session;
    const SenderState& sender = session.sender;
    if (call.head != nullptr) {
        prefetch_lines(&peer, &session.keys, &session.keys + 1);
        prefetch_lines(&peer, &sender.timeouts, &sender.size_search);
        prefetch_lines(&peer, &sender.tests_at, &sender.queues);
        prefetch(&sender.started);
        session.receiver.window.prefetch(call.glance.packet_number);
        prefetch_lines(&peer, &session.receiver.largest_arrived_at, &session.receiver.delays);
        prefetch_lines(&peer, session.receiver.delays.behind_samples(), &session.owed.complete_ids);
    } else {
        prefetch_lines(&peer, &session.keys, &sender.lane_acked_end);
        prefetch_lines(&peer, &sender.paths, &sender.size_search);
        prefetch_lines(&peer, &sender.pace_at, &sender.queues);
        prefetch_lines(&peer, &queue_of(call), &queue_of(call) + 1);
    }
}

inline void Endpoint::foresee_places(Foresight& call) const {
    if (call.head != nullptr) {
        const ReceiverState& receiver = call.peer->session->receiver;
        receiver.delays.prefetch(ArrivalDelays::lane(call.glance.traffic_class, call.glance.path));
        prefetch(&receiver.messages[call.glance.message_id]);
        return;
    }
    const SenderState& sender = call.peer->session->sender;
    const std::uint32_t slot = queue_of(call).first();
    if (slot < shared_.outgoing.slots()) shared_.outgoing[slot].prefetch();
    sender.sent.prefetch_next();
    sender.paths.prefetch_next();
    prefetch(sender.congestion.get());
    prefetch(reinterpret_cast<const char*>(sender.congestion.get()) + cache_line_bytes);
}

// The message of an arriving packet, and then its bit in it.
inline void Endpoint::foresee_message(Foresight& call) const {
    const std::uint32_t slot = call.peer->session->receiver.messages[call.glance.message_id].slot;
    if (slot >= shared_.incoming.slots()) {
        call.peer = nullptr;
        return;
    }
    const IncomingMessage& message = shared_.incoming[slot];
    prefetch_lines(&message, &message.state, &message.settled_at);
}

inline void Endpoint::foresee_block(const Foresight& call) const {
    const IncomingMessage& message =
        shared_.incoming[call.peer->session->receiver.messages[call.glance.message_id].slot];
    prefetch(message.received.words().data() + call.glance.block_index / 64);
}

}  // namespace dlcp

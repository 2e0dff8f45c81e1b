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
    prefetch_lines(this, &config_, &config_ + 1);
    prefetch(&peers_);
    prefetch_lines(this, &ready_classes_, &message_timers_ + 1);
    if (arrival) {
        prefetch_lines(this, &counters_.data_packets_received, &counters_.duplicate_blocks);
        prefetch_lines(this, &incoming_, &incoming_ + 1);
        prefetch(&touched_);
    } else {
        prefetch_lines(this, &counters_.data_packets_sent, &counters_.control_packets_sent);
        prefetch_lines(this, &outgoing_, &outgoing_ + 1);
        prefetch_lines(this, &control_queue_, &ready_[1]);
        prefetch(&pieces_.pending);
    }
}

inline void Endpoint::foresee_tables(bool arrival) const {
    prefetch(peers_.data());
    peer_timers_.prefetch();
    if (arrival) {
        incoming_.prefetch_table();
        prefetch(touched_.data());
    } else if (ready_classes_ != 0) {
        outgoing_.prefetch_table();
        prefetch(&ready_[next_class()].front());
    }
}

// The peer that the call is about, as far as can be told.
inline void Endpoint::foresee_peer(Foresight& call) const {
    call.peer = nullptr;
    std::uint32_t index = 0;
    if (call.head != nullptr) {
        call.glance = wire::glance_at(call.head);
        index = call.glance.session & 0xffff;  // find_session
    } else if (ready_classes_ != 0 && !ready_[next_class()].empty()) {
        call.glance.traffic_class = static_cast<std::uint8_t>(next_class());
        index = ready_[next_class()].front();
    } else {
        return;
    }
    if (index >= peers_.size()) return;
    const Peer& peer = *(call.peer = peers_[index].get());
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
    if (slot < outgoing_.slots()) outgoing_[slot].prefetch();
    sender.sent.prefetch_next();
    sender.paths.prefetch_next();
    prefetch(sender.congestion.get());
    prefetch(reinterpret_cast<const char*>(sender.congestion.get()) + cache_line_bytes);
}

// The message of an arriving packet, and then its bit in it.
inline void Endpoint::foresee_message(Foresight& call) const {
    const std::uint32_t slot = call.peer->session->receiver.messages[call.glance.message_id].slot;
    if (slot >= incoming_.slots()) {
        call.peer = nullptr;
        return;
    }
    const IncomingMessage& message = incoming_[slot];
    prefetch_lines(&message, &message.state, &message.settled_at);
}

inline void Endpoint::foresee_block(const Foresight& call) const {
    const IncomingMessage& message = incoming_[call.peer->session->receiver.messages[call.glance.message_id].slot];
    prefetch(message.received.words().data() + call.glance.block_index / 64);
}

}  // namespace dlcp

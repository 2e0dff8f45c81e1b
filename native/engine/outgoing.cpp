#include "engine/outgoing.hpp"

#include <algorithm>

namespace dlcp {

namespace {

// So many messages end before an otherwise empty packet informs the peer: few enough to keep the peer's memory of ids
// small, many enough that the packet costs nothing.
constexpr std::uint32_t untold_messages = 64;

}  // namespace

CommandResult<std::uint32_t> Outgoing::add(Time now, Peer& peer, const SendCommand& c) {
    if (c.traffic_class >= wire::control_class) return {{}, CommandError::bad_class};
    const bool reliable = c.delivery == Delivery::reliable;
    if (!reliable && !(c.loss_ratio >= 0.0 && c.loss_ratio < 1.0)) return {{}, CommandError::bad_loss_ratio};
    if (c.deadline < Duration{0} || (c.delivery == Delivery::deadline && c.deadline == Duration{0}))
        return {{}, CommandError::bad_deadline};
    if (c.unit_bytes == 0 || c.unit_bytes > most_unit_bytes) return {{}, CommandError::bad_unit};
    const std::uint16_t block_bytes = block_bytes_of(peer, c);
    if (block_bytes == 0) return {{}, CommandError::bad_importance_count};
    if (peer.outgoing.size() >= shared_.config.max_messages_per_peer) return {{}, CommandError::too_many_messages};

    const std::uint32_t slot = shared_.outgoing.take();
    OutgoingMessage& m = shared_.outgoing[slot];
    m.peer = peer.index;
    m.tag = c.tag;
    m.payload = c.payload;
    m.message_bytes = c.message_bytes;
    m.traffic_class = c.traffic_class;
    m.delivery = c.delivery;
    m.budget = reliable ? 0 : wire::encode_budget(c.loss_ratio);
    m.deadline = c.delivery == Delivery::deadline ? wire::encode_deadline(c.deadline) : 0;
    m.patient_until = c.delivery == Delivery::bounded && c.patience >= Duration{0} ? now + c.patience : time_never;
    m.since = now;
    m.state = OutgoingState();
    m.wire_id = 0;
    m.error = CommandError::none;
    m.retransmitted_bytes = 0;
    m.released = false;
    m.next_same_tag = UINT32_MAX;
    m.gated = c.gated;
    m.eager_bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(peer.stretched(shared_.config.eager).value, UINT32_MAX));
    m.unit_bytes = c.unit_bytes;
    m.reset(block_bytes, c.importance);
    peer.outgoing.push_back(shared_.outgoing, slot);

    // Messages of one tag leave one after the other, so that they match receives in order.
    TagMap::Chain& chain = active_tags_.get(peer.index, c.tag);
    if (chain.first == UINT32_MAX)
        chain.first = slot;
    else
        shared_.outgoing[chain.last].next_same_tag = slot;
    chain.last = slot;
    return {slot, CommandError::none};
}

CommandError Outgoing::release_blocks(Time now, MessageId id, std::uint32_t first, std::uint32_t count) {
    if (!shared_.known_outgoing(id.slot, id.generation)) return CommandError::unknown_message;
    OutgoingMessage& m = shared_.outgoing[id.slot];
    if (m.told()) return CommandError::none;
    Peer& peer = *shared_.peers[m.peer];
    if (!peer.up() || !m.gated || first > m.blocks() || count > m.blocks() - first)
        return CommandError::bad_release;
    m.release(first, count);
    if (m.state == OutgoingState::State::sending && !m.queue_link.linked) {
        // What was computed a moment ago lies in the processor's caches, and to copy it into a channel is to read it.
        enqueue(id.slot, is_trusted(peer.address));
        liveness_.update(now, peer);
    }
    return CommandError::none;
}

CommandError Outgoing::cancel(Time now, MessageId id) {
    if (!shared_.known_outgoing(id.slot, id.generation)) return CommandError::unknown_message;
    OutgoingMessage& m = shared_.outgoing[id.slot];
    if (m.told()) return CommandError::message_over;
    Peer& peer = *shared_.peers[m.peer];
    if (m.wire_id == 0) {
        finish(now, id.slot, CommandError::cancelled);
        return CommandError::none;
    }
    // The receiver must be notified, or it would wait for the rest. The caller's memory is free at once.
    peer.session->sender.queues[m.traffic_class].remove(shared_.outgoing, id.slot);
    m.state.apply(OutgoingState::Event::cancel);
    m.payload = nullptr;
    m.error = CommandError::cancelled;
    ++shared_.counters.messages_failed;
    shared_.push_event({.kind = EventKind::send_failed,
                        .error = m.error,
                        .peer = {m.peer},
                        .message = id,
                        .tag = m.tag,
                        .waited = now - m.since});
    peer.session->owed.cancel_ids.push_back(m.wire_id);
    shared_.queue_control(peer);
    return CommandError::none;
}

CommandError Outgoing::release(MessageId id) {
    if (!shared_.known_outgoing(id.slot, id.generation)) return CommandError::unknown_message;
    OutgoingMessage& m = shared_.outgoing[id.slot];
    if (m.state == OutgoingState::State::cancelling) {
        // Its failure was reported already; the slot is freed once the receiver knows.
        m.released = true;
        return CommandError::none;
    }
    if (!m.over()) return CommandError::message_not_over;
    shared_.outgoing.give_back(id.slot);
    return CommandError::none;
}

CommandResult<MessageOutcome> Outgoing::outcome(MessageId id) const {
    MessageOutcome out;
    if (!shared_.known_outgoing(id.slot, id.generation)) return {{}, CommandError::unknown_message};
    const OutgoingMessage& m = shared_.outgoing[id.slot];
    if (!m.told()) return {{}, CommandError::message_not_over};
    out.message_bytes = m.message_bytes;
    out.block_bytes = m.block_bytes();
    out.blocks = m.blocks();
    out.retransmitted_bytes = m.retransmitted_bytes;
    if (m.error == CommandError::none) {
        out.abandoned_blocks = m.abandoned_known();
        out.abandoned_bytes = m.bytes_of(m.abandoned());
        out.delivered_bytes = m.message_bytes - out.abandoned_bytes;
        if (out.abandoned_blocks > 0) out.abandoned = m.abandoned().words();
    }
    return {out, CommandError::none};
}

std::uint16_t Outgoing::block_bytes_of(const Peer& peer, const SendCommand& c) {
    for (const std::uint16_t most : {peer.block_bytes, peer.former_block_bytes}) {
        const std::uint16_t block_bytes = SharedState::in_units(most, c.unit_bytes);
        if (c.importance.empty() || c.importance.size() == wire::block_count(c.message_bytes, block_bytes))
            return block_bytes;
    }
    return 0;
}

std::uint32_t Outgoing::find(const Peer& peer, std::uint32_t wire_id) {
    const IdRing<std::uint32_t>& ids = peer.session->sender.ids;
    return ids.contains(wire_id) ? ids[wire_id] : UINT32_MAX;
}

void Outgoing::enqueue(std::uint32_t slot, bool front) {
    OutgoingMessage& m = shared_.outgoing[slot];
    Peer& peer = *shared_.peers[m.peer];
    if (m.state == OutgoingState::State::waiting) m.state.apply(OutgoingState::Event::start);
    if (m.state == OutgoingState::State::held) m.state.apply(OutgoingState::Event::proceed);
    // A message that waits for release_blocks() or for a first acknowledgement joins when it has something to send.
    if (!m.queue_link.linked && m.has_block_to_send()) {
        if (front)
            peer.session->sender.queues[m.traffic_class].push_front(shared_.outgoing, slot);
        else
            peer.session->sender.queues[m.traffic_class].push_back(shared_.outgoing, slot);
    }
    shared_.refresh(peer);
}

bool Outgoing::first_of_tag(std::uint32_t slot) {
    return active_tags_.find(shared_.outgoing[slot].peer, shared_.outgoing[slot].tag)->first == slot;
}

void Outgoing::start_all(Peer& peer) {
    for (std::uint32_t slot = peer.outgoing.front(); slot != Link::none;
         slot = OutgoingList::next(shared_.outgoing, slot)) {
        shared_.outgoing[slot].recut(SharedState::in_units(peer.block_bytes, shared_.outgoing[slot].unit_bytes));
        if (first_of_tag(slot)) enqueue(slot, false);
    }
}

void Outgoing::suspend_all(Peer& peer) {
    for (std::uint32_t slot = peer.outgoing.front(); slot != Link::none;
         slot = OutgoingList::next(shared_.outgoing, slot)) {
        unqueue(peer, slot);
        if (shared_.outgoing[slot].state == OutgoingState::State::sending)
            shared_.outgoing[slot].state.apply(OutgoingState::Event::suspend);
    }
}

void Outgoing::start_next_of_tag(OutgoingMessage& message) {
    TagMap::Chain* chain = active_tags_.find(message.peer, message.tag);
    const std::uint32_t next = message.next_same_tag;
    if (next == UINT32_MAX) {
        active_tags_.erase(message.peer, message.tag);
        return;
    }
    chain->first = next;
    if (shared_.peers[message.peer]->state == PeerState::State::established) enqueue(next, false);
}

// Removes the message from the session's queues, if it is in any.
void Outgoing::unqueue(Peer& peer, std::uint32_t slot) {
    if (!peer.session) return;
    SenderState& sender = peer.session->sender;
    sender.queues[shared_.outgoing[slot].traffic_class].remove(shared_.outgoing, slot);
    sender.started.remove(shared_.outgoing, slot);
}

// The message of this id is over: the floor that the peer learns may rise, which frees the peer's memory of ids below
// it.
void Outgoing::retire_id(Peer& peer, std::uint32_t wire_id) {
    SenderState& sender = peer.session->sender;
    sender.ids[wire_id] = UINT32_MAX;
    std::uint32_t floor = sender.ids.base();
    while (floor != sender.ids.end() && sender.ids[floor] == UINT32_MAX) ++floor;
    sender.ids.advance(floor);
    if (sender.ids_exhausted) shared_.refresh(peer);
    // A stream in one direction has no other reason to send the floor, and the peer remembers ids until it learns it.
    if (floor - sender.floor_told >= untold_messages && peer.up()) {
        peer.session->owed.floor = true;
        shared_.queue_control(peer);
    }
}

void Outgoing::finish(Time now, std::uint32_t slot, CommandError error) {
    OutgoingMessage& m = shared_.outgoing[slot];
    Peer& peer = *shared_.peers[m.peer];
    const bool told = m.state == OutgoingState::State::cancelling;
    const bool head = first_of_tag(slot);
    unqueue(peer, slot);
    peer.outgoing.remove(shared_.outgoing, slot);
    if (m.wire_id != 0) retire_id(peer, m.wire_id);
    m.state.apply(OutgoingState::Event::finish);
    if (head) {
        start_next_of_tag(m);
    } else {
        // A waiting message was cancelled: unlink it from the middle of its chain.
        TagMap::Chain* chain = active_tags_.find(m.peer, m.tag);
        std::uint32_t before = chain->first;
        while (shared_.outgoing[before].next_same_tag != slot) before = shared_.outgoing[before].next_same_tag;
        shared_.outgoing[before].next_same_tag = m.next_same_tag;
        if (chain->last == slot) chain->last = before;
    }
    m.next_same_tag = UINT32_MAX;
    if (told) {
        if (m.released) shared_.outgoing.give_back(slot);
    } else {
        m.error = error;
        m.payload = nullptr;
        if (error == CommandError::none)
            ++shared_.counters.messages_sent;
        else
            ++shared_.counters.messages_failed;
        shared_.push_event(
            {.kind = error == CommandError::none ? EventKind::send_finished : EventKind::send_failed,
             .error = error,
             .peer = {m.peer},
             .message = shared_.outgoing_id(slot),
             .tag = m.tag,
             .waited = now - m.since});
    }
    liveness_.update(now, peer);
}

}  // namespace dlcp

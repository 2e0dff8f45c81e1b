#include "engine/incoming.hpp"

#include <algorithm>
#include <utility>

namespace dlcp {

namespace {

// In a message of several blocks, blocks smaller than any datagram makes are refused: the bitmap would be large.
constexpr std::uint16_t least_block_bytes = 256;

}  // namespace

std::optional<MessageId> Incoming::claim(Time now, Peer* peer, const ReceiveCommand& c) {
    const std::uint32_t slot = matching_.find_unexpected(peer ? peer->index : UINT32_MAX, c.tag);
    if (slot == UINT32_MAX) return std::nullopt;
    matching_.remove_unexpected(slot);
    IncomingMessage& m = shared_.incoming[slot];
    const MessageId id = shared_.incoming_id(slot);
    m.state.apply(IncomingState::Event::claim);
    m.set_receive(now, peer ? peer->index : UINT32_MAX, c);
    const CommandError wrong = m.size_error();
    if (wrong == CommandError::none)
        m.unstage(now);
    else
        m.staging.reset();
    unexpected_ -= charge(m.message_bytes);
    if (!m.over()) {
        if (peer) ++peer->receives;
        credit_.expect(m);
        if (wrong != CommandError::none)
            finish(now, slot, wrong);
        else
            liveness_.update(now, *shared_.peers[m.peer]);
    } else {
        if (wrong != CommandError::none) m.error = wrong;
        ++(wrong == CommandError::none ? shared_.counters.messages_received : shared_.counters.messages_failed);
        shared_.push_event(
            {.kind = wrong == CommandError::none ? EventKind::receive_finished : EventKind::receive_failed,
             .error = wrong,
             .peer = {m.peer},
             .message = id,
             .tag = m.tag});
    }
    proceed_all();
    return id;
}

CommandResult<MessageId> Incoming::post(Time now, Peer* peer, const ReceiveCommand& c) {
    if ((peer ? peer->receives : matching_.any_receives()) >= shared_.config.max_messages_per_peer)
        return {{}, CommandError::too_many_messages};
    const std::uint32_t slot = shared_.incoming.take();
    shared_.incoming[slot].reset();
    shared_.incoming[slot].state.apply(IncomingState::Event::post);
    shared_.incoming[slot].tag = c.tag;
    shared_.incoming[slot].set_receive(now, peer ? peer->index : UINT32_MAX, c);
    matching_.post(slot);
    if (peer) {
        peer->posted.push_back(shared_.incoming, slot);
        ++peer->receives;
        liveness_.update(now, *peer);
        proceed_held(*peer);
    } else {
        proceed_all();
    }
    return {shared_.incoming_id(slot), CommandError::none};
}

CommandError Incoming::cancel(Time now, MessageId id) {
    const std::uint32_t slot = id.slot & ~SharedState::incoming_bit;
    if (!shared_.known_incoming(slot, id.generation)) return CommandError::unknown_message;
    if (shared_.incoming[slot].over()) return CommandError::message_over;
    finish(now, slot, CommandError::cancelled);
    return CommandError::none;
}

CommandError Incoming::release(MessageId id) {
    const std::uint32_t slot = id.slot & ~SharedState::incoming_bit;
    if (!shared_.known_incoming(slot, id.generation)) return CommandError::unknown_message;
    IncomingMessage& m = shared_.incoming[slot];
    if (!m.over()) return CommandError::message_not_over;
    m.released = true;
    forget(slot);
    return CommandError::none;
}

CommandResult<MessageOutcome> Incoming::outcome(MessageId id) const {
    const std::uint32_t slot = id.slot & ~SharedState::incoming_bit;
    if (!shared_.known_incoming(slot, id.generation)) return {{}, CommandError::unknown_message};
    const IncomingMessage& m = shared_.incoming[slot];
    if (!m.over()) return {{}, CommandError::message_not_over};
    MessageOutcome out;
    out.message_bytes = m.message_bytes;
    out.block_bytes = m.block_bytes;
    out.blocks = m.blocks;
    out.abandoned_blocks = m.abandoned_blocks;
    out.abandoned_bytes = m.abandoned_bytes;
    out.delivered_bytes = m.received_bytes;
    if (m.abandoned_blocks > 0) out.abandoned = m.received.words();
    return {out, CommandError::none};
}

std::size_t Incoming::discard_unexpected(Time now, const std::function<bool(std::uint64_t tag)>& unwanted) {
    std::size_t discarded = 0;
    for (std::uint32_t slot = 0; slot < shared_.incoming.slots(); ++slot) {
        if (!shared_.incoming.in_use(slot)) continue;
        IncomingMessage& m = shared_.incoming[slot];
        if (!m.unasked() || !unwanted(m.tag)) continue;
        ++discarded;
        if (!m.over()) {
            finish(now, slot, CommandError::cancelled);
            continue;
        }
        m.state.apply(IncomingState::Event::drop);
        give_up_unexpected(slot);
        forget(slot);
    }
    // Even if none was dropped: messages on hold may be among the unwanted ones.
    proceed_all();
    return discarded;
}

// A receive from any peer belongs to no peer.
void Incoming::close_receives_from_any(Time now) {
    for (std::uint32_t slot = 0; slot < shared_.incoming.slots(); ++slot)
        if (shared_.incoming.in_use(slot) && shared_.incoming[slot].has_receive() &&
            !shared_.incoming[slot].over())
            finish(now, slot, CommandError::closed);
}

// Whether there is room for a message without a receive.
bool Incoming::has_room(std::uint32_t message_bytes) const {
    return charge(message_bytes) <= shared_.config.max_unexpected_message &&
           unexpected_ + charge(message_bytes) <= shared_.config.max_unexpected;
}

void Incoming::announce_unexpected(const Peer& peer, const wire::Header& h) {
    if (!shared_.config.announce_unexpected) return;
    shared_.push_event(
        {.kind = EventKind::message_unexpected, .peer = {peer.index}, .tag = h.tag, .value = h.message_bytes});
}

// Makes room for a message at its first packet. False: the message cannot be accepted now.
bool Incoming::open_message(Time now, Peer& peer, const wire::Header& h) {
    std::uint32_t slot = matching_.take_posted(peer.index, h.tag);
    if (slot != UINT32_MAX) {
        IncomingMessage& m = shared_.incoming[slot];
        if (m.wanted_peer == UINT32_MAX) peer.posted.push_back(shared_.incoming, slot);
        m.set_message(peer.index, h);
    } else {
        if (!has_room(h.message_bytes)) return false;
        slot = shared_.incoming.take();
        IncomingMessage& m = shared_.incoming[slot];
        m.reset();
        m.set_message(peer.index, h);
        unexpected_ += charge(h.message_bytes);
        peer.posted.push_back(shared_.incoming, slot);
        matching_.add_unexpected(slot);
        announce_unexpected(peer, h);
    }
    IncomingMessage& m = shared_.incoming[slot];
    if (m.deadline != 0) m.deadline_at = now + wire::decode_deadline(m.deadline);
    IncomingEntry& entry = peer.session->receiver.messages[h.message_id];
    entry.state.apply(IncomingIdState::Event::open);
    entry.slot = slot;
    if (m.has_receive()) credit_.expect(m);
    if (m.has_receive() && m.size_error() != CommandError::none) finish(now, slot, m.size_error());
    return true;
}

bool Incoming::handle_data(Time now, Time arrived, Peer& peer, const wire::Datagram& d) {
    const wire::Header& h = d.header;
    ReceiverState& receiver = peer.session->receiver;
    const std::uint32_t delay_ns = static_cast<std::uint32_t>(arrived.value) - h.timestamp_ns;
    const std::size_t lane = ArrivalDelays::lane(h.traffic_class, h.path);
    const Duration queued = receiver.delays.sample_data(now, lane, delay_ns);
    if (const auto overtaken = receiver.delays.overtaken(lane, h.packet_number))
        shared_.sprayed.on_pair(*overtaken);
    credit_.arrived(peer, arrived, wire::header_bytes + h.payload_bytes, queued);
    peer.last_data_at = now;

    const bool describes = h.type == wire::Type::data;
    if (h.message_id == 0 || h.message_id == UINT32_MAX ||
        (describes && h.block_bytes < least_block_bytes && h.message_bytes > h.block_bytes)) {
        ++shared_.counters.inconsistent;
        return true;
    }
    if (h.message_id < receiver.messages.base()) {
        ++shared_.counters.late_blocks;
        return true;
    }
    if (!describes && !receiver.knows(h.message_id)) {
        ++shared_.counters.inconsistent;  // senders wait until a block of the message is acknowledged
        return false;
    }
    if (h.message_id - receiver.messages.base() >= shared_.id_span()) {
        hold_beyond_span(peer, h);
        return false;
    }
    receiver.messages.extend(h.message_id);
    IncomingEntry& entry = receiver.messages[h.message_id];
    if (entry.state == IncomingIdState::State::unknown || entry.state == IncomingIdState::State::held)
        open_or_hold(now, peer, h, entry);
    if (entry.state == IncomingIdState::State::held) {
        ++shared_.counters.held_packets;
        answer(peer, h.message_id);  // to every packet: the hold frame may have been lost
        return false;
    }
    if (entry.state != IncomingIdState::State::active) {
        ++shared_.counters.late_blocks;
        answer(peer, h.message_id);
        return true;
    }
    place_block(now, entry.slot, d, delay_ns);
    return true;
}

// A message lies so far ahead of the oldest open one that its state could not be remembered: it is held.
void Incoming::hold_beyond_span(Peer& peer, const wire::Header& h) {
    ++shared_.counters.held_packets;
    std::vector<std::uint32_t>& ids = peer.session->owed.hold_ids;
    if (std::find(ids.begin(), ids.end(), h.message_id) != ids.end()) return;
    ids.push_back(h.message_id);
    shared_.queue_control(peer);
    shared_.push_bound(Bound::messages, CommandError::too_many_messages, {peer.index}, h.tag);
}

// The first packet of a message, or of a message on hold: opens it, or puts it on hold.
void Incoming::open_or_hold(Time now, Peer& peer, const wire::Header& h, IncomingEntry& entry) {
    ReceiverState& receiver = peer.session->receiver;
    // The packet left before the sender received the hold frame; there may be room by now.
    if (entry.state == IncomingIdState::State::held &&
        (has_room(h.message_bytes) || matching_.find_posted(peer.index, h.tag) != UINT32_MAX)) {
        entry.state.apply(IncomingIdState::Event::make_room);
        entry.answer_queued = false;
        std::erase(peer.session->owed.hold_ids, h.message_id);
        --receiver.held;
    }
    if (entry.state != IncomingIdState::State::unknown || open_message(now, peer, h)) return;
    entry.state.apply(IncomingIdState::Event::hold);
    ++receiver.held;
    announce_unexpected(peer, h);
    // Holding a long message is normal. The bound is reached when even a short one has no room.
    if (charge(h.message_bytes) <= shared_.config.max_unexpected_message)
        shared_.push_bound(Bound::unexpected_bytes, CommandError::none, {peer.index}, h.tag);
}

// Places the block once, and ends the message if it was the last block missing.
void Incoming::place_block(Time now, std::uint32_t slot, const wire::Datagram& d, std::uint32_t delay_ns) {
    const wire::Header& h = d.header;
    IncomingMessage& m = shared_.incoming[slot];
    const bool critical = (h.flags & wire::flag::critical) != 0;
    // The packet contradicts the first packet of the message, or there are more blocks of this kind than it announced.
    if (!m.fits(h) || (!m.received.test(h.block_index) && m.full(critical))) {
        ++shared_.counters.inconsistent;
        return;
    }
    if (m.received.insert(h.block_index)) {
        ++m.received_blocks;
        m.received_bytes += h.payload_bytes;
        m.received_critical += critical;
        credit_.placed(m, h.payload_bytes);
        shared_.counters.data_bytes_placed += h.payload_bytes;
        m.place(now, h.block_index, d.payload, h.payload_bytes);
        coalescing_.on_data(h.payload_bytes, m.missing_bytes(), is_trusted(shared_.peers[m.peer]->address));
    } else {
        ++shared_.counters.duplicate_blocks;
    }
    if (h.flags & wire::flag::first_pass_over) note_first_pass_over(now, m, delay_ns);
    if (m.complete())
        finish(now, slot, CommandError::none);
    else if (m.tolerant())
        end_if_possible(now, slot);
}

// The sender states that it had sent every block when it sent a packet that took `delay_ns`. Every block sent before
// that packet has arrived or is lost by the time a packet of the slowest path would have arrived; of most paths a short
// message has seen few packets, so no less than the quarter of a round trip that senders wait (RFC 8985 section 6.2).
void Incoming::note_first_pass_over(Time now, IncomingMessage& m, std::uint32_t delay_ns) {
    m.first_pass_over = true;
    const Peer& peer = *shared_.peers[m.peer];
    const Duration margin = peer.session->receiver.delays.straggler_margin(
        now, delay_ns, ArrivalDelays::lane(m.traffic_class, 0), ArrivalDelays::most_paths,
        std::max(peer.rtt.smoothed() * 2, milliseconds(1)));
    const Duration least = peer.rtt.measured() ? peer.rtt.min() / 4 : Duration{0};
    m.settled_at = std::min(m.settled_at, now + std::max(margin, least));
}

void Incoming::end_if_possible(Time now, std::uint32_t slot) {
    IncomingMessage& m = shared_.incoming[slot];
    Time look_again = time_never;
    if (m.critical_complete()) {
        if (now >= m.deadline_at) return finish(now, slot, CommandError::none);
        look_again = m.deadline_at;
        if (m.first_pass_over && m.within_budget()) {
            if (now >= m.settled_at) return finish(now, slot, CommandError::none);
            look_again = std::min(look_again, m.settled_at);
        }
    } else if (now < m.deadline_at) {
        look_again = m.deadline_at;
    }
    if (shared_.message_timers.at(slot) != look_again) shared_.message_timers.set(slot, look_again);
}

void Incoming::finish(Time now, std::uint32_t slot, CommandError error) {
    IncomingMessage& m = shared_.incoming[slot];
    shared_.message_timers.set(slot, time_never);
    m.error = error;
    const bool arrived = m.arriving();
    const std::uint32_t owner = arrived ? m.peer : m.wanted_peer;
    m.state.apply(m.has_receive()               ? IncomingState::Event::end
                  : error == CommandError::none ? IncomingState::Event::complete
                                                : IncomingState::Event::drop);
    if (owner != UINT32_MAX) shared_.peers[owner]->posted.remove(shared_.incoming, slot);
    if (arrived) {
        settle_message(slot);
    } else {
        matching_.unpost(slot);
        m.confirmed = true;
    }
    if (m.has_receive()) {
        ++(error == CommandError::none ? shared_.counters.messages_received : shared_.counters.messages_failed);
        shared_.push_event(
            {.kind = error == CommandError::none ? EventKind::receive_finished : EventKind::receive_failed,
             .error = error,
             .peer = {owner},
             .message = shared_.incoming_id(slot),
             .tag = m.tag,
             .waited = now - m.since});
        if (m.wanted_peer != UINT32_MAX) --shared_.peers[m.wanted_peer]->receives;
    }
    if (owner != UINT32_MAX) liveness_.update(now, *shared_.peers[owner]);
    forget(slot);
}

// For a message that is over: counts its missing blocks, and notifies its sender.
void Incoming::settle_message(std::uint32_t slot) {
    IncomingMessage& m = shared_.incoming[slot];
    Peer& peer = *shared_.peers[m.peer];
    credit_.ended(m);
    if (m.error == CommandError::none) {
        m.abandoned_blocks = m.blocks - m.received_blocks;
        m.abandoned_bytes = m.missing_bytes();
        m.received.invert();
        shared_.counters.abandoned_blocks += m.abandoned_blocks;
        shared_.counters.abandoned_bytes += m.abandoned_bytes;
    }
    IdRing<IncomingEntry>* const messages = peer.session ? &peer.session->receiver.messages : nullptr;
    if (messages != nullptr && messages->contains(m.wire_id) && (*messages)[m.wire_id].slot == slot) {
        IncomingEntry& entry = (*messages)[m.wire_id];
        close_entry(entry, m);
        if (entry.state != IncomingIdState::State::abandoned) {
            entry.slot = UINT32_MAX;
            m.confirmed = true;
        }
        if (peer.up()) answer(peer, m.wire_id);
    } else {
        m.confirmed = true;
    }
    if (m.state == IncomingState::State::dropped) {
        // An incomplete message without a receive is not kept.
        give_up_unexpected(slot);
        proceed_all();
    }
}

// The message is no longer kept for a receive.
void Incoming::give_up_unexpected(std::uint32_t slot) {
    IncomingMessage& m = shared_.incoming[slot];
    matching_.remove_unexpected(slot);
    unexpected_ -= charge(m.message_bytes);
    m.staging.reset();
    m.released = true;
}

// How the sender is answered from now on when it asks about this message.
void Incoming::close_entry(IncomingEntry& entry, const IncomingMessage& m) {
    if (m.error == CommandError::none || m.error == CommandError::peer_cancelled) {
        entry.state.apply(m.abandoned_blocks > 0 ? IncomingIdState::Event::abandon
                                                 : IncomingIdState::Event::deliver);
        return;
    }
    entry.state.apply(IncomingIdState::Event::refuse);
    const bool wrong_length = m.error == CommandError::receive_too_small || m.error == CommandError::wrong_size;
    entry.reason = static_cast<std::uint8_t>(wrong_length ? CommandError::refused : CommandError::peer_cancelled);
}

void Incoming::answer(Peer& peer, std::uint32_t wire_id) {
    IncomingEntry& entry = peer.session->receiver.messages[wire_id];
    Owed& owed = peer.session->owed;
    if (entry.answer_queued) return;
    switch (entry.state.state()) {
        case IncomingIdState::State::delivered: owed.complete_ids.push_back(wire_id); break;
        case IncomingIdState::State::abandoned: owed.outcome_ids.push_back(wire_id); break;
        case IncomingIdState::State::refused: owed.refuse_ids.push_back(wire_id); break;
        case IncomingIdState::State::held: owed.hold_ids.push_back(wire_id); break;
        default: return;
    }
    entry.answer_queued = true;
    shared_.queue_control(peer);
}

// Frees the slot once neither the application nor the sender needs it.
void Incoming::forget(std::uint32_t slot) {
    IncomingMessage& m = shared_.incoming[slot];
    if (!m.over() || !m.released || !m.confirmed) return;
    shared_.incoming.give_back(slot);
}

// The sender no longer needs the outcome of this message.
void Incoming::forget_outcome(IncomingEntry& entry) {
    if (entry.slot == UINT32_MAX) return;
    const std::uint32_t slot = std::exchange(entry.slot, UINT32_MAX);
    shared_.incoming[slot].confirmed = true;
    forget(slot);
}

void Incoming::answer_again(Peer& peer) {
    const IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    for (std::uint32_t id = messages.base(); id != messages.end(); ++id)
        if (messages[id].state == IncomingIdState::State::delivered ||
            messages[id].state == IncomingIdState::State::abandoned)
            answer(peer, id);
}

void Incoming::end_active(Time now, Peer& peer) {
    const IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    for (std::uint32_t id = messages.base(); id != messages.end(); ++id)
        if (messages[id].state == IncomingIdState::State::active)
            finish(now, messages[id].slot, CommandError::closed);
}

void Incoming::forget_outcomes(Peer& peer) {
    if (!peer.session) return;
    IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    for (std::uint32_t id = messages.base(); id != messages.end(); ++id) forget_outcome(messages[id]);
}

void Incoming::advance_floor(Time now, Peer& peer, std::uint32_t floor) {
    ReceiverState& receiver = peer.session->receiver;
    if (floor <= receiver.messages.base() || floor == UINT32_MAX) return;
    for (std::uint32_t id = receiver.messages.base(); id != floor && id != receiver.messages.end(); ++id) {
        IncomingEntry& entry = receiver.messages[id];
        if (entry.state == IncomingIdState::State::held) --receiver.held;
        if (entry.state == IncomingIdState::State::active) finish(now, entry.slot, CommandError::peer_cancelled);
        forget_outcome(entry);
    }
    receiver.messages.advance(floor);
}

void Incoming::handle_timer(Time now) {
    while (shared_.message_timers.next() <= now) {
        const std::uint32_t slot = shared_.message_timers.top();
        shared_.message_timers.set(slot, time_never);
        end_if_possible(now, slot);
    }
}

std::string Incoming::check_invariants() const {
    Bytes unexpected{0};
    for (std::uint32_t slot = 0; slot < shared_.incoming.slots(); ++slot)
        if (shared_.incoming.in_use(slot) && shared_.incoming[slot].unasked())
            unexpected += charge(shared_.incoming[slot].message_bytes);
    if (unexpected != unexpected_) return "unexpected bytes miscounted";
    return unexpected_ > shared_.config.max_unexpected ? "unexpected bytes over their bound" : "";
}

void Incoming::proceed_all() {
    for (auto& each : shared_.peers) proceed_held(*each);
}

// There may be room now: senders that hold a message may try again.
void Incoming::proceed_held(Peer& peer) {
    if (!peer.session || peer.session->receiver.held == 0) return;
    ReceiverState& receiver = peer.session->receiver;
    for (std::uint32_t id = receiver.messages.base(); id != receiver.messages.end(); ++id) {
        IncomingEntry& entry = receiver.messages[id];
        if (entry.state != IncomingIdState::State::held) continue;
        entry.state.apply(IncomingIdState::Event::make_room);
        entry.answer_queued = false;
        peer.session->owed.proceed_ids.push_back(id);
    }
    receiver.held = 0;
    shared_.queue_control(peer);
}

}  // namespace dlcp

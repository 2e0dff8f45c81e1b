// Incoming messages: where a block goes, when a message may end, and what its end means to both sides.
#include <algorithm>
#include <utility>

#include "engine/endpoint.hpp"

namespace dlcp {

namespace {

// In a message of several blocks, blocks smaller than any datagram makes are refused: the bitmap would be large.
constexpr std::uint16_t least_block_bytes = 256;

}  // namespace

// Whether there is room for a message without a receive.
bool Endpoint::has_room(std::uint32_t message_bytes) const {
    return charge(message_bytes) <= config_.max_unexpected_message &&
           unexpected_ + charge(message_bytes) <= config_.max_unexpected;
}

void Endpoint::announce_unexpected(const Peer& peer, const wire::Header& h) {
    if (!config_.announce_unexpected) return;
    push_event(
        {.kind = EventKind::message_unexpected, .peer = {peer.index}, .tag = h.tag, .value = h.message_bytes});
}

// Makes room for a message at its first packet. False: the message cannot be accepted now.
bool Endpoint::open_message(Time now, Peer& peer, const wire::Header& h) {
    std::uint32_t slot = take_posted(peer.index, h.tag);
    if (slot != UINT32_MAX) {
        IncomingMessage& m = incoming_[slot];
        if (m.wanted_peer == UINT32_MAX) peer.posted.push_back(incoming_, slot);
        m.set_message(peer.index, h);
    } else {
        if (!has_room(h.message_bytes)) return false;
        slot = incoming_.take();
        IncomingMessage& m = incoming_[slot];
        m.reset();
        m.set_message(peer.index, h);
        unexpected_ += charge(h.message_bytes);
        peer.posted.push_back(incoming_, slot);
        add_unexpected(slot);
        announce_unexpected(peer, h);
    }
    IncomingMessage& m = incoming_[slot];
    if (m.deadline != 0) m.deadline_at = now + wire::decode_deadline(m.deadline);
    IncomingEntry& entry = peer.session->receiver.messages[h.message_id];
    entry.state.apply(IncomingIdState::Event::open);
    entry.slot = slot;
    if (m.has_receive()) count_for_turns(m);
    if (m.has_receive() && m.size_error() != CommandError::none) finish_incoming(now, slot, m.size_error());
    return true;
}

// Something of a message with a receive is to come. What nobody has asked for has no turns: the engine does not know yet
// whether it is a part of a whole.
void Endpoint::count_for_turns(IncomingMessage& m) {
    const Peer& peer = *peers_[m.peer];
    if (!turns_.gives() || is_trusted(peer.address)) return;
    m.counted = true;
    if (m.part)
        turns_.part_opened(peer.index);
    else
        turns_.opened(peer.index, {m.traffic_class, m.message_bytes}, m.missing_bytes(), peer.rank - config_.rank,
                      peer.rtt.measured() ? peer.rtt.min() : config_.initial_rtt);
}

// Accepts one block. False: no room, so the packet is not acknowledged.
bool Endpoint::handle_data(Time now, Time arrived, Peer& peer, const wire::Datagram& d) {
    const wire::Header& h = d.header;
    ReceiverState& receiver = peer.session->receiver;
    const std::uint32_t delay_ns = static_cast<std::uint32_t>(arrived.value) - h.timestamp_ns;
    const std::size_t lane = ArrivalDelays::lane(h.traffic_class, h.path);
    const Duration queued = receiver.delays.sample_data(now, lane, delay_ns);
    if (const auto overtaken = receiver.delays.overtaken(lane, h.packet_number)) sprayed_.on_pair(*overtaken);
    if (turns_.gives() && !is_trusted(peer.address))  // a channel takes nothing of the line
        turns_.arrived(arrived, wire::header_bytes + h.payload_bytes, queued);
    peer.last_data_at = now;

    const bool describes = h.type == wire::Type::data;
    if (h.message_id == 0 || h.message_id == UINT32_MAX ||
        (describes && h.block_bytes < least_block_bytes && h.message_bytes > h.block_bytes)) {
        ++counters_.inconsistent;
        return true;
    }
    if (h.message_id < receiver.messages.base()) {
        ++counters_.late_blocks;
        return true;
    }
    if (!describes && !receiver.knows(h.message_id)) {
        ++counters_.inconsistent;  // senders wait until a block of the message is acknowledged
        return false;
    }
    if (h.message_id - receiver.messages.base() >= id_span()) {
        hold_beyond_span(peer, h);
        return false;
    }
    receiver.messages.extend(h.message_id);
    IncomingEntry& entry = receiver.messages[h.message_id];
    if (entry.state == IncomingIdState::State::unknown || entry.state == IncomingIdState::State::held)
        open_or_hold(now, peer, h, entry);
    if (entry.state == IncomingIdState::State::held) {
        ++counters_.held_packets;
        answer(peer, h.message_id);  // to every packet: the hold frame may have been lost
        return false;
    }
    if (entry.state != IncomingIdState::State::active) {
        ++counters_.late_blocks;
        answer(peer, h.message_id);
        return true;
    }
    place_block(now, entry.slot, d, delay_ns);
    return true;
}

// Whether a message lies so far ahead of the oldest open one that the receiver could not remember its state.
void Endpoint::hold_beyond_span(Peer& peer, const wire::Header& h) {
    ++counters_.held_packets;
    std::vector<std::uint32_t>& ids = peer.session->owed.hold_ids;
    if (std::find(ids.begin(), ids.end(), h.message_id) != ids.end()) return;
    ids.push_back(h.message_id);
    queue_control(peer);
    push_bound(Bound::messages, CommandError::too_many_messages, {peer.index}, h.tag);
}

// The first packet of a message, or of a message on hold: opens it, or puts it on hold.
void Endpoint::open_or_hold(Time now, Peer& peer, const wire::Header& h, IncomingEntry& entry) {
    ReceiverState& receiver = peer.session->receiver;
    // The packet left before the sender received the hold frame; there may be room by now.
    if (entry.state == IncomingIdState::State::held &&
        (has_room(h.message_bytes) || find_posted(peer.index, h.tag) != UINT32_MAX)) {
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
    if (charge(h.message_bytes) <= config_.max_unexpected_message)
        push_bound(Bound::unexpected_bytes, CommandError::none, {peer.index}, h.tag);
}

// Places the block once, and ends the message if it was the last block missing.
void Endpoint::place_block(Time now, std::uint32_t slot, const wire::Datagram& d, std::uint32_t delay_ns) {
    const wire::Header& h = d.header;
    IncomingMessage& m = incoming_[slot];
    const bool critical = (h.flags & wire::flag::critical) != 0;
    // The packet contradicts the first packet of the message, or there are more blocks of this kind than it announced.
    if (!m.fits(h) || (!m.received.test(h.block_index) && m.full(critical))) {
        ++counters_.inconsistent;
        return;
    }
    if (m.received.insert(h.block_index)) {
        ++m.received_blocks;
        m.received_bytes += h.payload_bytes;
        m.received_critical += critical;
        if (m.counted && !m.part) turns_.placed(m.peer, {m.traffic_class, m.message_bytes}, h.payload_bytes);
        counters_.data_bytes_placed += h.payload_bytes;
        m.place(now, h.block_index, d.payload, h.payload_bytes);
        coalescing_.on_data(h.payload_bytes, m.missing_bytes(), is_trusted(peers_[m.peer]->address));
    } else {
        ++counters_.duplicate_blocks;
    }
    if (h.flags & wire::flag::first_pass_over) note_first_pass_over(now, m, delay_ns);
    if (m.complete())
        finish_incoming(now, slot, CommandError::none);
    else if (m.tolerant())
        end_if_possible(now, slot);
}

// The sender states that it had sent every block when it sent a packet that took `delay_ns`. Every block sent before
// that packet has arrived or is lost by the time a packet of the slowest path would have arrived; of most paths a short
// message has seen few packets, so no less than the quarter of a round trip that senders wait (RFC 8985 section 6.2).
void Endpoint::note_first_pass_over(Time now, IncomingMessage& m, std::uint32_t delay_ns) {
    m.first_pass_over = true;
    const Peer& peer = *peers_[m.peer];
    const Duration margin = peer.session->receiver.delays.straggler_margin(
        now, delay_ns, ArrivalDelays::lane(m.traffic_class, 0), ArrivalDelays::most_paths,
        std::max(peer.rtt.smoothed() * 2, milliseconds(1)));
    const Duration least = peer.rtt.measured() ? peer.rtt.min() / 4 : Duration{0};
    m.settled_at = std::min(m.settled_at, now + std::max(margin, least));
}

// Ends a message that may end with blocks missing, or sets the time of the next check.
void Endpoint::end_if_possible(Time now, std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    Time look_again = time_never;
    if (m.critical_complete()) {
        if (now >= m.deadline_at) return finish_incoming(now, slot, CommandError::none);
        look_again = m.deadline_at;
        if (m.first_pass_over && m.within_budget()) {
            if (now >= m.settled_at) return finish_incoming(now, slot, CommandError::none);
            look_again = std::min(look_again, m.settled_at);
        }
    } else if (now < m.deadline_at) {
        look_again = m.deadline_at;
    }
    if (message_timers_.at(slot) != look_again) message_timers_.set(slot, look_again);
}

// Ends an incoming message or a receive: notifies the application if it asked, and the sender if it sent anything.
void Endpoint::finish_incoming(Time now, std::uint32_t slot, CommandError error) {
    IncomingMessage& m = incoming_[slot];
    message_timers_.set(slot, time_never);
    m.error = error;
    const bool arrived = m.arriving();
    const std::uint32_t owner = arrived ? m.peer : m.wanted_peer;
    m.state.apply(m.has_receive()               ? IncomingState::Event::end
                  : error == CommandError::none ? IncomingState::Event::complete
                                                : IncomingState::Event::drop);
    if (owner != UINT32_MAX) peers_[owner]->posted.remove(incoming_, slot);
    if (arrived) {
        settle_message(slot);
    } else {
        unpost(slot);
        m.confirmed = true;
    }
    if (m.has_receive()) {
        ++(error == CommandError::none ? counters_.messages_received : counters_.messages_failed);
        push_event({.kind = error == CommandError::none ? EventKind::receive_finished : EventKind::receive_failed,
                    .error = error,
                    .peer = {owner},
                    .message = incoming_id(slot),
                    .tag = m.tag,
                    .waited = now - m.since});
        if (m.wanted_peer != UINT32_MAX) --peers_[m.wanted_peer]->receives;
    }
    if (owner != UINT32_MAX) update_liveness(now, *peers_[owner]);
    forget_incoming(slot);
}

// For a message that is over: counts its missing blocks, and notifies its sender.
void Endpoint::settle_message(std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    Peer& peer = *peers_[m.peer];
    if (m.counted && m.part)
        turns_.part_ended(m.peer);
    else if (m.counted)
        turns_.placed(m.peer, {m.traffic_class, m.message_bytes}, m.missing_bytes());
    if (m.error == CommandError::none) {
        m.abandoned_blocks = m.blocks - m.received_blocks;
        m.abandoned_bytes = m.missing_bytes();
        m.received.invert();
        counters_.abandoned_blocks += m.abandoned_blocks;
        counters_.abandoned_bytes += m.abandoned_bytes;
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
        for (auto& each : peers_) proceed_held(*each);
    }
}

// The message is no longer kept for a receive.
void Endpoint::give_up_unexpected(std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    remove_unexpected(slot);
    unexpected_ -= charge(m.message_bytes);
    m.staging.reset();
    m.released = true;
}

// How the sender is answered from now on when it asks about this message.
void Endpoint::close_entry(IncomingEntry& entry, const IncomingMessage& m) {
    if (m.error == CommandError::none || m.error == CommandError::peer_cancelled) {
        entry.state.apply(m.abandoned_blocks > 0 ? IncomingIdState::Event::abandon
                                                 : IncomingIdState::Event::deliver);
        return;
    }
    entry.state.apply(IncomingIdState::Event::refuse);
    const bool wrong_length = m.error == CommandError::receive_too_small || m.error == CommandError::wrong_size;
    entry.reason = static_cast<std::uint8_t>(wrong_length ? CommandError::refused : CommandError::peer_cancelled);
}

// Frees the slot once neither the application nor the sender needs it.
void Endpoint::forget_incoming(std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    if (!m.over() || !m.released || !m.confirmed) return;
    incoming_.give_back(slot);
}

// The sender no longer needs the outcome of this message.
void Endpoint::forget_outcome(IncomingEntry& entry) {
    if (entry.slot == UINT32_MAX) return;
    const std::uint32_t slot = std::exchange(entry.slot, UINT32_MAX);
    incoming_[slot].confirmed = true;
    forget_incoming(slot);
}

// All messages below `floor` are over for the sender: their records may go.
void Endpoint::advance_floor(Time now, Peer& peer, std::uint32_t floor) {
    ReceiverState& receiver = peer.session->receiver;
    if (floor <= receiver.messages.base() || floor == UINT32_MAX) return;
    for (std::uint32_t id = receiver.messages.base(); id != floor && id != receiver.messages.end(); ++id) {
        IncomingEntry& entry = receiver.messages[id];
        if (entry.state == IncomingIdState::State::held) --receiver.held;
        if (entry.state == IncomingIdState::State::active)
            finish_incoming(now, entry.slot, CommandError::peer_cancelled);
        forget_outcome(entry);
    }
    receiver.messages.advance(floor);
}

}  // namespace dlcp

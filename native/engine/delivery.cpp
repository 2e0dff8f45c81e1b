// Messages coming in: where a block goes, when a message may end, and what its end means to both sides.
#include <algorithm>
#include <utility>

#include "engine/endpoint.hpp"

namespace dlcp {

namespace {

// Smaller blocks than any datagram makes are refused where a message has several: their bitmap would be large.
constexpr std::uint16_t least_block_bytes = 256;

// Paths told apart when judging how late a straggler may be: the most a sender may have.
constexpr std::size_t most_lanes = 64;

}  // namespace

// Is there room for a message that nobody has asked for?
bool Endpoint::has_room(std::uint32_t message_bytes) const {
    return charge(message_bytes) <= config_.max_unexpected_message &&
           unexpected_ + charge(message_bytes) <= config_.max_unexpected;
}

void Endpoint::announce_unexpected(const Peer& peer, const wire::Header& h) {
    if (!config_.announce_unexpected) return;
    push_event(
        {.kind = EventKind::message_unexpected, .peer = {peer.index}, .tag = h.tag, .value = h.message_bytes});
}

// Makes room for a message whose first packet this is. False: it cannot be taken now.
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
    entry.state = IncomingEntry::State::active;
    entry.slot = slot;
    if (m.posted && m.size_error() != CommandError::none) finish_incoming(now, slot, m.size_error());
    return true;
}

// Takes one block. False if there was no room for it, so that it is not acknowledged.
bool Endpoint::handle_data(Time now, Time arrived, Peer& peer, const wire::Datagram& d) {
    const wire::Header& h = d.header;
    ReceiverState& receiver = peer.session->receiver;
    const std::uint32_t delay_ns = static_cast<std::uint32_t>(arrived.value) - h.timestamp_ns;
    // The peer numbers its paths as it likes; more of them than a sender may have share entries.
    receiver.delays.sample_data(now, h.traffic_class * most_lanes + h.path % most_lanes, delay_ns);
    peer.last_data_at = now;

    if (h.message_id == 0 || h.message_id == UINT32_MAX ||
        (h.block_bytes < least_block_bytes && h.message_bytes > h.block_bytes)) {
        ++counters_.inconsistent;
        return true;
    }
    if (h.message_id < receiver.messages.base()) {
        ++counters_.late_blocks;
        return true;
    }
    if (h.message_id - receiver.messages.base() >= id_span()) {
        hold_beyond_span(peer, h);
        return false;
    }
    const IncomingEntry& entry = find_message(now, peer, h);
    if (entry.state == IncomingEntry::State::held) {
        ++counters_.held_packets;
        answer(peer, h.message_id);  // again for each: the frame to hold may have been lost
        return false;
    }
    if (entry.state != IncomingEntry::State::active) {
        ++counters_.late_blocks;
        answer(peer, h.message_id);
        return true;
    }
    place_block(now, entry.slot, d, delay_ns);
    return true;
}

// A message so far ahead of the oldest that is not over that nothing could be remembered of it.
void Endpoint::hold_beyond_span(Peer& peer, const wire::Header& h) {
    ++counters_.held_packets;
    std::vector<std::uint32_t>& ids = peer.session->owed.hold_ids;
    if (std::find(ids.begin(), ids.end(), h.message_id) != ids.end()) return;
    ids.push_back(h.message_id);
    queue_control(peer);
    push_bound(Bound::messages, CommandError::too_many_messages, {peer.index}, h.tag);
}

// What is known of the message that a data packet names; its first packet opens it, or puts it on hold.
const IncomingEntry& Endpoint::find_message(Time now, Peer& peer, const wire::Header& h) {
    ReceiverState& receiver = peer.session->receiver;
    receiver.messages.extend(h.message_id);
    IncomingEntry& entry = receiver.messages[h.message_id];
    // Sent before the sender heard that it must hold; there may be room by now.
    if (entry.state == IncomingEntry::State::held &&
        (has_room(h.message_bytes) || find_posted(peer.index, h.tag) != UINT32_MAX)) {
        entry = IncomingEntry{};
        std::erase(peer.session->owed.hold_ids, h.message_id);
        --receiver.held;
    }
    if (entry.state != IncomingEntry::State::unknown || open_message(now, peer, h)) return entry;
    entry.state = IncomingEntry::State::held;
    ++receiver.held;
    announce_unexpected(peer, h);
    // A long message is held on principle; the bound is reached when even a short one has no room.
    if (charge(h.message_bytes) <= config_.max_unexpected_message)
        push_bound(Bound::unexpected_bytes, CommandError::none, {peer.index}, h.tag);
    return entry;
}

// Puts the block where it belongs, once, and ends the message if that was all it waited for.
void Endpoint::place_block(Time now, std::uint32_t slot, const wire::Datagram& d, std::uint32_t delay_ns) {
    const wire::Header& h = d.header;
    IncomingMessage& m = incoming_[slot];
    const bool critical = (h.flags & wire::flag::critical) != 0;
    // Another message than the first packet said, or more blocks of this kind than it said there are.
    if (!m.agrees(h) || (!m.received.test(h.block_index) && m.full(critical))) {
        ++counters_.inconsistent;
        return;
    }
    if (m.received.insert(h.block_index)) {
        ++m.received_blocks;
        m.received_bytes += h.payload_bytes;
        m.received_critical += critical;
        counters_.data_bytes_placed += h.payload_bytes;
        m.place(now, h.block_index, d.payload, h.payload_bytes);
    } else {
        ++counters_.duplicate_blocks;
    }
    if (h.flags & wire::flag::first_pass_over) note_first_pass_over(now, m, delay_ns);
    if (m.complete())
        finish_incoming(now, slot, CommandError::none);
    else if (m.tolerant())
        end_if_possible(now, slot);
}

// The sender says that it had sent every block when it sent a packet that took `delay_ns`: what was sent before it is
// here or lost once a packet of the slowest path would have come.
void Endpoint::note_first_pass_over(Time now, IncomingMessage& m, std::uint32_t delay_ns) {
    m.first_pass_over = true;
    const Peer& peer = *peers_[m.peer];
    m.settled_at = std::min(m.settled_at, now + peer.session->receiver.delays.straggler_margin(
                                                    now, delay_ns, m.traffic_class * most_lanes, most_lanes,
                                                    std::max(peer.rtt.smoothed() * 2, milliseconds(1))));
}

// Ends a message that may end with blocks missing, or sets the time to look again.
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

// Ends an incoming message or receive: tells the application if it asked, and the sender if it sent.
void Endpoint::finish_incoming(Time now, std::uint32_t slot, CommandError error) {
    IncomingMessage& m = incoming_[slot];
    message_timers_.set(slot, time_never);
    m.over = true;
    m.error = error;
    const std::uint32_t owner = m.arrived ? m.peer : m.wanted_peer;
    if (owner != UINT32_MAX) peers_[owner]->posted.remove(incoming_, slot);
    if (m.arrived)
        settle_message(slot);
    else
        unpost(slot);
    if (m.posted) {
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

// Of a message that is over: counts what is missing, and tells its sender.
void Endpoint::settle_message(std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    Peer& peer = *peers_[m.peer];
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
        if (entry.state != IncomingEntry::State::abandoned) {
            entry.slot = UINT32_MAX;
            m.confirmed = true;
        }
        if (peer.up()) answer(peer, m.wire_id);
    } else {
        m.confirmed = true;
    }
    if (!m.posted && m.error != CommandError::none) {
        // Nobody will ever ask for half a message.
        remove_unexpected(slot);
        unexpected_ -= charge(m.message_bytes);
        m.staging.reset();
        m.released = true;
        for (auto& each : peers_) proceed_held(*each);
    }
}

// What the sender is answered from now on when it asks for this message.
void Endpoint::close_entry(IncomingEntry& entry, const IncomingMessage& m) {
    switch (m.error) {
        case CommandError::none:
            entry.state =
                m.abandoned_blocks > 0 ? IncomingEntry::State::abandoned : IncomingEntry::State::delivered;
            return;
        case CommandError::peer_cancelled: entry.state = IncomingEntry::State::delivered; return;
        default: entry.state = IncomingEntry::State::refused;
    }
    const bool wrong_length = m.error == CommandError::receive_too_small || m.error == CommandError::wrong_size;
    entry.reason = static_cast<std::uint8_t>(wrong_length ? CommandError::refused : CommandError::peer_cancelled);
}

// Gives the slot back once neither the application nor the sender needs it.
void Endpoint::forget_incoming(std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    if (!m.over || !m.released || (m.arrived && !m.confirmed)) return;
    incoming_.give_back(slot);
}

// The sender needs the outcome of this message no more.
void Endpoint::forget_outcome(IncomingEntry& entry) {
    if (entry.slot == UINT32_MAX) return;
    const std::uint32_t slot = std::exchange(entry.slot, UINT32_MAX);
    incoming_[slot].confirmed = true;
    forget_incoming(slot);
}

// Everything below `floor` is over for the sender: what was kept to tell it may go.
void Endpoint::advance_floor(Time now, Peer& peer, std::uint32_t floor) {
    ReceiverState& receiver = peer.session->receiver;
    if (floor <= receiver.messages.base() || floor == UINT32_MAX) return;
    for (std::uint32_t id = receiver.messages.base(); id != floor && id != receiver.messages.end(); ++id) {
        IncomingEntry& entry = receiver.messages[id];
        if (entry.state == IncomingEntry::State::held) --receiver.held;
        if (entry.state == IncomingEntry::State::active)
            finish_incoming(now, entry.slot, CommandError::peer_cancelled);
        forget_outcome(entry);
    }
    receiver.messages.advance(floor);
}

}  // namespace dlcp

// Packets in: which session, is it authentic, where does its block go, and is the message over.
#include <algorithm>
#include <cstring>

#include "engine/endpoint_impl.hpp"

namespace dlcp {

namespace {

constexpr std::uint8_t ecn_mask = 3;
constexpr std::uint8_t congestion_experienced = 3;

// Packets after which an acknowledgement is sent even if none was asked for (the request may have been lost).
constexpr std::uint32_t ack_after_packets = 128;

// Smaller blocks than any datagram makes are refused where a message has several: their bitmap would be large.
constexpr std::uint16_t least_block_bytes = 256;

// Paths told apart when judging how late a straggler may be: the most a sender may have.
constexpr std::size_t most_lanes = 64;

// A peer counts as a sender so long after its last packet at least. They are gone through not at every acknowledgement,
// which with hundreds of them costs more than all else.
constexpr Duration sender_memory = milliseconds(10);
constexpr Duration senders_check = milliseconds(1);

// Trimmed packets remembered for one control packet; more than that in one batch are found by other means.
constexpr std::size_t most_trimmed = 64;

}  // namespace

void Endpoint::Impl::touch(Peer& peer) {
    if (peer.touched) return;
    peer.touched = true;
    touched_.push_back(peer.index);
}

// Without a tag only what came out of the private channel is taken that a hello of this very session came out of. The
// hello was tagged under the job key, and a channel has one process at its other end: so this is that process's, as
// surely as a tag would say, and it cannot be a replay of what was said elsewhere. The packet number is checked as ever.
// Whatever else claims the session, on a network or out of another channel, needs its tag.
bool Endpoint::Impl::authentic(Peer& peer, const dlcp_packet& packet, const wire::Datagram& d) {
    const bool tagged = d.tag != nullptr;
    if (!tagged && packet.flags & DLCP_PACKET_TRUSTED && peer.channel_session == peer.peer_session &&
        same_address(*packet.address, peer.channel)) {
        return true;
    }
    if (tagged != peer.keys.present()) {
        ++counters_.unauthenticated;
        return false;
    }
    if (!tagged) return true;
    PacketKey* key = peer.keys.receive(config_, d.header.key_epoch);
    bool good = false;
    if (key != nullptr) {
        const std::span<const std::uint8_t> payload = d.content();
        if (d.header.flags & wire::flag::encrypted) {
            // In place, in the driver's buffer: the caller's memory sees only what proved authentic.
            good = key->decrypt(d.bytes, d.header.packet_number, payload, const_cast<std::uint8_t*>(d.payload),
                                d.tag);
        } else {
            good = key->verify(d.bytes, d.header.packet_number, payload, d.tag);
        }
    }
    if (!good) {
        ++counters_.bad_tag;
        return false;
    }
    peer.keys.proven(d.header.key_epoch);
    return true;
}

void Endpoint::Impl::handle_packets(Time now, std::span<const dlcp_packet> packets) {
    touched_.clear();
    wire::Datagram d;
    for (std::size_t i = 0; i < packets.size(); ++i) {
        const dlcp_packet& packet = packets[i];
        if (i + 1 < packets.size()) __builtin_prefetch(packets[i + 1].head);
        if (packet.flags & DLCP_PACKET_GONE) {
            handle_gone(now, *packet.address);
            continue;
        }
        const std::uint32_t virtual_bytes = packet.flags & DLCP_PACKET_VIRTUAL ? packet.body_bytes : 0;
        const wire::ParseError error = wire::parse({packet.head, packet.head_bytes}, virtual_bytes, d);
        if (error != wire::ParseError::none) {
            ++counters_.malformed[static_cast<std::size_t>(error)];
            continue;
        }
        const wire::Header& h = d.header;
        const Time arrived = packet.arrival_ns != 0 ? std::min(Time{packet.arrival_ns}, now) : now;
        if (h.job != config_.job) {
            ++counters_.foreign_job;
            continue;
        }
        if (h.type == wire::Type::hello) {
            handle_hello(now, arrived, packet, d);
            continue;
        }
        const std::uint32_t index = h.session & 0xffff;
        Peer* peer = index < peers_.size() ? peers_[index].get() : nullptr;
        if (peer == nullptr || h.source_rank != peer->rank) {
            ++counters_.stale_session;
            continue;
        }
        const bool current =
            peer->state == Peer::State::established && h.session == static_cast<std::uint32_t>(peer->own_session);
        if (!current && !establish_by(now, *peer, d)) {
            ++counters_.stale_session;
            continue;
        }
        if (h.flags & wire::flag::trimmed) {
            // Not authentic: it may hasten a repair of a packet that was not seen, nothing else.
            ++counters_.trimmed_packets_received;
            // Of a session's first packets all may be trimmed.
            const std::uint64_t largest = peer->window.empty() ? 0 : peer->window.largest();
            if (h.packet_number >> 62 == 0 && peer->window.fresh(h.packet_number) &&
                peer->trimmed_numbers.size() < most_trimmed && h.packet_number < largest + PacketWindow::width) {
                peer->trimmed_numbers.push_back(h.packet_number);
                queue_control(*peer);
            }
            continue;
        }
        if (h.packet_number >> 62 != 0) {
            ++counters_.inconsistent;  // no session lives that long
            continue;
        }
        if (!peer->window.fresh(h.packet_number)) {
            ++counters_.replayed;
            continue;
        }
        if (!authentic(*peer, packet, d)) continue;
        peer->last_heard = now;
        peer->keepalive_tries = 0;
        touch(*peer);
        const bool ce = (packet.tos & ecn_mask) == congestion_experienced;
        if (h.type == wire::Type::data) {
            if (!handle_data(now, arrived, *peer, d)) {
                peer->window.refuse(h.packet_number);  // not taken: not acknowledged, and not heard again
                continue;
            }
            ++counters_.data_packets_received;
            counters_.data_bytes_received += h.payload_bytes;
            ++peer->unacked_packets;
        } else {
            ++counters_.control_packets_received;
        }
        if (ce) {
            ++peer->ce_received;
            ++counters_.ce_packets_received;
        }
        if (peer->window.empty() || h.packet_number > peer->window.largest()) peer->largest_arrived_at = now;
        peer->window.insert(h.packet_number, ce);
        if (h.flags & wire::flag::ack_request) peer->ack_now = true;
        if (h.type == wire::Type::control) handle_control(now, arrived, *peer, d);
    }

    for (std::uint32_t index : touched_) {
        Peer& peer = *peers_[index];
        peer.touched = false;
        if (peer.state != Peer::State::established) continue;
        if (peer.ack_now || peer.unacked_packets >= ack_after_packets) {
            peer.ack_now = true;
            queue_control(peer);
        } else if (peer.unacked_packets > 0 && peer.ack_at == time_never) {
            peer.ack_at = now + config_.max_ack_delay;
        }
        if (peer.waiting)
            update_liveness(now, peer);  // and arms
        else
            arm(peer);
    }
}

// Is there room for a message that nobody has asked for?
bool Endpoint::Impl::has_room(std::uint32_t message_bytes) const {
    return charge(message_bytes) <= config_.max_unexpected_message &&
           unexpected_ + charge(message_bytes) <= config_.max_unexpected;
}

void Endpoint::Impl::announce_unexpected(const Peer& peer, const wire::Header& h) {
    if (config_.announce_unexpected)
        push_event(
            {EventKind::message_unexpected, CommandError::none, {peer.index}, {}, h.tag, h.message_bytes, {0}});
}

// The process at the other end of a channel has ended without a goodbye.
void Endpoint::Impl::handle_gone(Time now, const dlcp_address& address) {
    for (const auto& peer : peers_) {
        const bool open = peer->state == Peer::State::established || peer->state == Peer::State::connecting;
        if (open && same_address(peer->address, address)) peer_down(now, *peer, CommandError::peer_gone);
    }
}

// Makes room for a message whose first packet this is. UINT32_MAX: it cannot be taken now.
std::uint32_t Endpoint::Impl::open_message(Time now, Peer& peer, const wire::Header& h) {
    std::uint32_t slot = take_posted(peer.index, h.tag);
    if (slot != UINT32_MAX) {
        IncomingMessage& m = incoming_[slot];
        if (m.wanted_peer == UINT32_MAX) peer.posted.push_back(incoming_, slot);
        m.set_message(peer.index, h);
    } else {
        if (!has_room(h.message_bytes)) return UINT32_MAX;
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
    IncomingEntry& entry = peer.incoming[h.message_id];
    entry.state = IncomingEntry::State::active;
    entry.slot = slot;
    if (m.posted && m.size_error() != CommandError::none) finish_incoming(now, slot, m.size_error());
    return slot;
}

// Takes one block. False if there was no room for it, so that it is not acknowledged.
bool Endpoint::Impl::handle_data(Time now, Time arrived, Peer& peer, const wire::Datagram& d) {
    const wire::Header& h = d.header;
    const std::uint32_t delay_ns = static_cast<std::uint32_t>(arrived.value) - h.timestamp_ns;
    // The peer numbers its paths as it likes; more of them than a sender may have share entries.
    peer.arrival_delays.sample_data(now, h.traffic_class * most_lanes + h.path % most_lanes, delay_ns);
    peer.last_data_at = now;

    if (h.message_id == 0 || h.message_id == UINT32_MAX ||
        (h.block_bytes < least_block_bytes && h.message_bytes > h.block_bytes)) {
        ++counters_.inconsistent;
        return true;
    }
    if (h.message_id < peer.incoming.base()) {
        ++counters_.late_blocks;
        return true;
    }
    if (h.message_id - peer.incoming.base() >= id_span()) {
        ++counters_.held_packets;
        if (std::find(peer.hold_ids.begin(), peer.hold_ids.end(), h.message_id) == peer.hold_ids.end()) {
            peer.hold_ids.push_back(h.message_id);
            queue_control(peer);
            push_event({EventKind::bound_reached,
                        CommandError::too_many_messages,
                        {peer.index},
                        {},
                        h.tag,
                        static_cast<std::uint32_t>(Bound::messages),
                        {0}});
        }
        return false;
    }
    peer.incoming.extend(h.message_id);
    IncomingEntry& entry = peer.incoming[h.message_id];
    if (entry.state == IncomingEntry::State::held) {
        // Sent before it heard; there may be room by now.
        if (has_room(h.message_bytes) || find_posted(peer.index, h.tag) != UINT32_MAX) {
            entry = IncomingEntry{};
            std::erase(peer.hold_ids, h.message_id);
            --peer.held;
        }
    }
    if (entry.state == IncomingEntry::State::unknown && open_message(now, peer, h) == UINT32_MAX) {
        entry.state = IncomingEntry::State::held;
        ++peer.held;
        announce_unexpected(peer, h);
        // A long message is held on principle; the bound is reached when even a short one has no room.
        if (charge(h.message_bytes) <= config_.max_unexpected_message)
            push_event({EventKind::bound_reached,
                        CommandError::none,
                        {peer.index},
                        {},
                        h.tag,
                        static_cast<std::uint32_t>(Bound::unexpected_bytes),
                        {0}});
    }
    if (entry.state == IncomingEntry::State::held) {
        ++counters_.held_packets;
        answer(peer, h.message_id);  // again for each: the word to hold may have been lost
        return false;
    }
    if (entry.state != IncomingEntry::State::active) {
        ++counters_.late_blocks;
        answer(peer, h.message_id);
        return true;
    }

    IncomingMessage& m = incoming_[entry.slot];
    if (!m.agrees(h)) {
        ++counters_.inconsistent;
        return true;
    }
    const bool critical = (h.flags & wire::flag::critical) != 0;
    if (!m.received.test(h.block_index) && m.full(critical)) {
        ++counters_.inconsistent;  // more of this kind than the message said it has
        return true;
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
        finish_incoming(now, entry.slot, CommandError::none);
    else if (m.tolerant())
        end_if_possible(now, entry.slot);
    return true;
}

// The sender says that it had sent every block when it sent a packet that took `delay_ns`: what was sent before it is
// here or lost once a packet of the slowest path would have come.
void Endpoint::Impl::note_first_pass_over(Time now, IncomingMessage& m, std::uint32_t delay_ns) {
    m.first_pass_over = true;
    const Peer& peer = *peers_[m.peer];
    m.settled_at = std::min(m.settled_at, now + peer.arrival_delays.straggler_margin(
                                                    now, delay_ns, m.traffic_class * most_lanes, most_lanes,
                                                    std::max(peer.rtt.smoothed() * 2, milliseconds(1))));
}

// Ends a message that may end with blocks missing, or sets the time to look again.
void Endpoint::Impl::end_if_possible(Time now, std::uint32_t slot) {
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
void Endpoint::Impl::finish_incoming(Time now, std::uint32_t slot, CommandError error) {
    IncomingMessage& m = incoming_[slot];
    message_timers_.set(slot, time_never);
    m.over = true;
    m.error = error;
    const std::uint32_t owner = m.arrived ? m.peer : m.wanted_peer;
    if (owner != UINT32_MAX) peers_[owner]->posted.remove(incoming_, slot);
    if (!m.arrived) unpost(slot);

    if (m.arrived) {
        Peer& peer = *peers_[m.peer];
        const bool tracked = peer.incoming.contains(m.wire_id) && peer.incoming[m.wire_id].slot == slot;
        IncomingEntry* entry = tracked ? &peer.incoming[m.wire_id] : nullptr;
        if (error == CommandError::none) {
            m.abandoned_blocks = m.blocks - m.received_blocks;
            m.abandoned_bytes = m.missing_bytes();
            m.received.invert();
            counters_.abandoned_blocks += m.abandoned_blocks;
            counters_.abandoned_bytes += m.abandoned_bytes;
            if (entry)
                entry->state =
                    m.abandoned_blocks > 0 ? IncomingEntry::State::abandoned : IncomingEntry::State::delivered;
        } else if (entry) {
            // Our side gave up, or the sender did: tell it, or confirm.
            entry->state = error == CommandError::peer_cancelled ? IncomingEntry::State::delivered
                                                                 : IncomingEntry::State::refused;
            entry->reason = error == CommandError::receive_too_small || error == CommandError::wrong_size
                                ? static_cast<std::uint8_t>(CommandError::refused)
                                : static_cast<std::uint8_t>(CommandError::peer_cancelled);
        }
        if (entry) {
            if (entry->state != IncomingEntry::State::abandoned) {
                entry->slot = UINT32_MAX;
                m.confirmed = true;
            }
            if (peer.state == Peer::State::established) answer(peer, m.wire_id);
        } else {
            m.confirmed = true;
        }
        if (!m.posted && error != CommandError::none) {
            // Nobody will ever ask for half a message.
            remove_unexpected(slot);
            unexpected_ -= charge(m.message_bytes);
            m.staging.reset();
            m.released = true;
            for (auto& each : peers_) proceed_held(*each);
        }
    }
    if (m.posted) {
        if (error == CommandError::none)
            ++counters_.messages_received;
        else
            ++counters_.messages_failed;
        push_event({error == CommandError::none ? EventKind::receive_finished : EventKind::receive_failed,
                    error,
                    {owner},
                    incoming_id(slot),
                    m.tag,
                    0,
                    now - m.since});
    }
    if (m.posted && m.wanted_peer != UINT32_MAX) --peers_[m.wanted_peer]->receives;
    if (owner != UINT32_MAX) update_liveness(now, *peers_[owner]);
    forget_incoming(slot);
}

// Gives the slot back once neither the application nor the sender needs it.
void Endpoint::Impl::forget_incoming(std::uint32_t slot) {
    IncomingMessage& m = incoming_[slot];
    if (!m.over || !m.released || (m.arrived && !m.confirmed)) return;
    incoming_.give_back(slot);
}

// Everything below `floor` is over for the sender: what was kept to tell it may go.
void Endpoint::Impl::advance_floor(Time now, Peer& peer, std::uint32_t floor) {
    if (floor <= peer.incoming.base() || floor == UINT32_MAX) return;
    for (std::uint32_t id = peer.incoming.base(); id != floor && id != peer.incoming.end(); ++id) {
        IncomingEntry& entry = peer.incoming[id];
        if (entry.state == IncomingEntry::State::held) --peer.held;
        if (entry.state == IncomingEntry::State::active)
            finish_incoming(now, entry.slot, CommandError::peer_cancelled);
        if (entry.slot == UINT32_MAX) continue;
        const std::uint32_t slot = entry.slot;
        entry.slot = UINT32_MAX;
        incoming_[slot].confirmed = true;
        forget_incoming(slot);
    }
    peer.incoming.advance(floor);
}

// How much this peer may have in flight to us: the receive buffer shared by those that sent lately, so that together
// they cannot overflow it.
Bytes Endpoint::Impl::credit_for(Time now, Peer& peer) {
    if (is_trusted(peer.address)) return config_.channel_buffer;  // shared with nobody
    if (now >= senders_checked_at_ + senders_check) {
        senders_checked_at_ = now;
        std::erase_if(senders_, [&](std::uint32_t index) {
            Peer& other = *peers_[index];
            other.sends = now - other.last_data_at <= std::max(other.rtt.smoothed() * 8, sender_memory);
            return !other.sends;
        });
    }
    if (!peer.sends) {
        peer.sends = true;
        senders_.push_back(peer.index);
    }
    return std::max(config_.receive_buffer / senders_.size(), Bytes{2 * std::uint64_t{peer.datagram_bytes}});
}

}  // namespace dlcp

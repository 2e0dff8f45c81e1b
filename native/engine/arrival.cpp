// Arriving packets: which session each belongs to, whether it is authentic and new, and what to acknowledge.
#include <algorithm>
#include <cstring>

#include "engine/endpoint.hpp"

namespace dlcp {

namespace {

constexpr std::uint8_t ecn_mask = 3;
constexpr std::uint8_t congestion_experienced = 3;

// After this many packets an acknowledgement is sent even if no packet asked for one (the request may have been lost).
constexpr std::uint32_t ack_after_packets = 128;

// A peer counts as a sender for at least this long after its last data. The endpoint does not walk the list of senders
// at every acknowledgement: with hundreds of senders that walk would cost more than all else.
constexpr Duration sender_memory = milliseconds(10);
constexpr Duration senders_check = milliseconds(1);

// Trimmed packets remembered for one control packet. Further losses of the same batch are found by acknowledgements.
constexpr std::size_t most_trimmed = 64;

}  // namespace

void Endpoint::touch(Peer& peer) {
    if (peer.touched) return;
    peer.touched = true;
    touched_.push_back(peer.index);
}

// A packet without a tag is accepted only from a private channel that has already delivered a hello of the same
// session. The job key authenticated that hello, and a channel has one process at its other end, so the packet comes
// from that process. It cannot be a replay from another session. The packet number is checked as usual. Any other
// packet of the session, from a network or from another channel, needs its tag.
bool Endpoint::authentic(Peer& peer, const dlcp_packet& packet, const wire::Datagram& d) {
    const bool tagged = d.tag != nullptr;
    SessionKeys& keys = peer.session->keys;
    if (!tagged && packet.flags & DLCP_PACKET_TRUSTED &&
        peer.handshake.channel_session == peer.handshake.peer_session &&
        same_address(*packet.address, peer.handshake.channel)) {
        return true;
    }
    if (tagged != keys.present()) {
        ++counters_.unauthenticated;
        return false;
    }
    if (!tagged) return true;
    PacketKey* key = keys.receive(config_, d.header.key_epoch);
    bool good = false;
    if (key != nullptr) {
        const std::span<const std::uint8_t> payload = d.content();
        if (d.header.flags & wire::flag::encrypted) {
            // Decrypted in place, in the driver's buffer: only authentic bytes reach the caller's memory.
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
    keys.proven(d.header.key_epoch);
    return true;
}

void Endpoint::handle_packets(Time now, std::span<const dlcp_packet> packets) {
    touched_.clear();
    wire::Datagram datagram;  // one for the batch: constructing one costs as much as parsing
    for (std::size_t i = 0; i < packets.size(); ++i) {
        if (i + 1 < packets.size()) __builtin_prefetch(packets[i + 1].head);
        handle_packet(now, packets[i], datagram);
    }
    for (std::uint32_t index : touched_) {
        Peer& peer = *peers_[index];
        peer.touched = false;
        if (peer.up()) acknowledge_batch(now, peer);
    }
    coalescing_.end_batch(now, config_.receive_buffer);
    if (turns_.due(now)) give_turns(now);
}

void Endpoint::handle_packet(Time now, const dlcp_packet& packet, wire::Datagram& d) {
    if (packet.flags & DLCP_PACKET_GONE) {
        handle_gone(now, *packet.address);
        return;
    }
    const std::uint32_t virtual_bytes = packet.flags & DLCP_PACKET_VIRTUAL ? packet.body_bytes : 0;
    const wire::ParseError error = wire::parse({packet.head, packet.head_bytes}, virtual_bytes, d);
    if (error != wire::ParseError::none) {
        ++counters_.malformed[static_cast<std::size_t>(error)];
        return;
    }
    const Time arrived = packet.arrival_ns != 0 ? std::min(Time{packet.arrival_ns}, now) : now;
    if (d.header.job != config_.job) {
        ++counters_.foreign_job;
        return;
    }
    if (d.header.type == wire::Type::hello) {
        handle_hello(now, arrived, packet, d);
        return;
    }
    Peer* const peer = find_session(now, d);
    if (peer == nullptr) {
        ++counters_.stale_session;
        return;
    }
    if (d.header.type == wire::Type::short_data) {
        const PacketWindow& window = peer->session->receiver.window;
        d.header.packet_number =
            wire::expand_packet_number(d.header.packet_number, window.empty() ? 0 : window.largest());
    }
    if (d.header.flags & wire::flag::trimmed)
        note_trimmed(*peer, d.header);
    else
        take_packet(now, arrived, *peer, packet, d);
}

// The peer whose session this packet names: the current session, or one that this packet establishes.
Peer* Endpoint::find_session(Time now, const wire::Datagram& d) {
    const wire::Header& h = d.header;
    const std::uint32_t index = h.session & 0xffff;
    Peer* peer = index < peers_.size() ? peers_[index].get() : nullptr;
    if (peer == nullptr) return nullptr;
    const bool current = peer->up() && h.session == static_cast<std::uint32_t>(peer->handshake.own_session);
    // A short header answers an acknowledgement of this session, so the session was established before.
    if (h.type == wire::Type::short_data) return current ? peer : nullptr;
    if (h.source_rank != peer->rank) return nullptr;
    return current || establish_by(now, *peer, d) ? peer : nullptr;
}

// A switch cut the payload off. The packet is not authentic: it may hasten the repair of a packet that has not arrived,
// nothing else.
void Endpoint::note_trimmed(Peer& peer, const wire::Header& h) {
    ++counters_.trimmed_packets_received;
    turns_.trimmed(wire::header_bytes);
    const PacketWindow& window = peer.session->receiver.window;
    std::vector<std::uint64_t>& numbers = peer.session->owed.trimmed_numbers;
    // All of a session's first packets may be trimmed.
    const std::uint64_t largest = window.empty() ? 0 : window.largest();
    if (h.packet_number >> 62 != 0 || !window.fresh(h.packet_number) || numbers.size() >= most_trimmed ||
        h.packet_number >= largest + PacketWindow::width)
        return;
    numbers.push_back(h.packet_number);
    queue_control(peer);
}

// A packet of this session: once, if it is authentic.
void Endpoint::take_packet(Time now, Time arrived, Peer& peer, const dlcp_packet& packet,
                           const wire::Datagram& d) {
    const wire::Header& h = d.header;
    if (h.packet_number >> 62 != 0) {
        ++counters_.inconsistent;  // no session lives that long
        return;
    }
    ReceiverState& receiver = peer.session->receiver;
    if (!receiver.window.fresh(h.packet_number)) {
        ++counters_.replayed;
        return;
    }
    if (!authentic(peer, packet, d)) return;
    peer.last_heard = now;
    peer.keepalive_tries = 0;
    touch(peer);
    if (wire::is_data(h.type)) {
        if (!handle_data(now, arrived, peer, d)) {
            receiver.window.refuse(h.packet_number);  // not acknowledged; a duplicate is dropped
            return;
        }
        ++counters_.data_packets_received;
        counters_.data_bytes_received += h.payload_bytes;
        ++receiver.unacked_packets;
    } else {
        ++counters_.control_packets_received;
    }
    const bool ce = (packet.tos & ecn_mask) == congestion_experienced;
    if (ce) {
        ++receiver.ce_packets;
        ++counters_.ce_packets_received;
    }
    if (receiver.window.empty() || h.packet_number > receiver.window.largest()) receiver.largest_arrived_at = now;
    receiver.window.insert(h.packet_number, ce);
    if (h.flags & wire::flag::ack_request) peer.session->owed.ack = true;
    if (h.type == wire::Type::control) handle_control(now, arrived, peer, packet, d);
}

// A data packet that came in pieces.
void Endpoint::take_whole(const FramesIn& in, Peer& peer, const dlcp_packet& packet, const wire::Datagram& d) {
    take_packet(in.now, in.arrived, peer, packet, d);
}

// After a batch: acknowledge at once, or set the time by which to acknowledge.
void Endpoint::acknowledge_batch(Time now, Peer& peer) {
    ReceiverState& receiver = peer.session->receiver;
    if (peer.session->owed.ack || receiver.unacked_packets >= ack_after_packets) {
        peer.session->owed.ack = true;
        queue_control(peer);
    } else if (receiver.unacked_packets > 0 && receiver.ack_at == time_never) {
        receiver.ack_at = now + config_.max_ack_delay;
    }
    if (peer.waiting)
        update_liveness(now, peer);  // and arms
    else
        arm(peer);
}

// The process at the other end of a channel has ended without a goodbye.
void Endpoint::handle_gone(Time now, const dlcp_address& address) {
    for (const auto& peer : peers_) {
        const bool open = peer->up() || peer->state == PeerState::State::connecting;
        if (open && same_address(peer->address, address)) peer_down(now, *peer, CommandError::peer_gone);
    }
}

// How much this peer may have in flight to this endpoint: a share of the receive buffer. All recent senders share it,
// so that together they cannot overflow it.
Bytes Endpoint::credit_for(Time now, Peer& peer) {
    if (is_trusted(peer.address)) return config_.channel_buffer;  // not shared
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

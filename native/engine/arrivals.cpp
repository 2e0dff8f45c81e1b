#include "engine/arrivals.hpp"

#include <algorithm>

namespace dlcp {

namespace {

constexpr std::uint8_t ecn_mask = 3;
constexpr std::uint8_t congestion_experienced = 3;

// After this many packets an acknowledgement is sent even if no packet asked for one (the request may have been lost).
constexpr std::uint32_t ack_after_packets = 128;

// Trimmed packets remembered for one control packet. Further losses of the same batch are found by acknowledgements.
constexpr std::size_t most_trimmed = 64;

}  // namespace

void Arrivals::touch(Peer& peer) {
    if (peer.touched) return;
    peer.touched = true;
    touched_.push_back(peer.index);
}

// A packet without a tag is accepted only from a private channel that has already delivered a hello of the same
// session. The job key authenticated that hello, and a channel has one process at its other end, so the packet comes
// from that process. It cannot be a replay from another session. The packet number is checked as usual. Any other
// packet of the session, from a network or from another channel, needs its tag.
bool Arrivals::authentic(Peer& peer, const dlcp_packet& packet, const wire::Datagram& d) {
    const bool tagged = d.tag != nullptr;
    SessionKeys& keys = peer.session->keys;
    if (!tagged && packet.flags & DLCP_PACKET_TRUSTED &&
        peer.handshake.channel_session == peer.handshake.peer_session &&
        same_address(*packet.address, peer.handshake.channel)) {
        return true;
    }
    if (tagged != keys.present()) {
        ++shared_.counters.unauthenticated;
        return false;
    }
    if (!tagged) return true;
    PacketKey* key = keys.receive(shared_.config, d.header.key_epoch);
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
        ++shared_.counters.bad_tag;
        return false;
    }
    keys.proven(d.header.key_epoch);
    return true;
}

void Arrivals::handle_packets(Time now, std::span<const dlcp_packet> packets) {
    touched_.clear();
    wire::Datagram datagram;  // one for the batch: constructing one costs as much as parsing
    for (std::size_t i = 0; i < packets.size(); ++i) {
        if (i + 1 < packets.size()) __builtin_prefetch(packets[i + 1].head);
        handle_packet(now, packets[i], datagram);
    }
    for (std::uint32_t index : touched_) {
        Peer& peer = *shared_.peers[index];
        peer.touched = false;
        if (peer.up()) acknowledge_batch(now, peer);
    }
    incoming_.end_batch(now);
    credit_.settle(now);
}

void Arrivals::handle_packet(Time now, const dlcp_packet& packet, wire::Datagram& d) {
    if (packet.flags & DLCP_PACKET_GONE) {
        handle_gone(now, *packet.address);
        return;
    }
    const std::uint32_t virtual_bytes = packet.flags & DLCP_PACKET_VIRTUAL ? packet.body_bytes : 0;
    const wire::ParseError error = wire::parse({packet.head, packet.head_bytes}, virtual_bytes, d);
    if (error != wire::ParseError::none) {
        ++shared_.counters.malformed[static_cast<std::size_t>(error)];
        return;
    }
    const Time arrived = packet.arrival_ns != 0 ? std::min(Time{packet.arrival_ns}, now) : now;
    if (d.header.job != shared_.config.job) {
        ++shared_.counters.foreign_job;
        return;
    }
    if (d.header.type == wire::Type::hello) {
        sessions_.handle_hello(now, arrived, packet, d);
        return;
    }
    Peer* const peer = find_session(now, d);
    if (peer == nullptr) {
        ++shared_.counters.stale_session;
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
Peer* Arrivals::find_session(Time now, const wire::Datagram& d) {
    const wire::Header& h = d.header;
    const std::uint32_t index = h.session & 0xffff;
    Peer* peer = index < shared_.peers.size() ? shared_.peers[index].get() : nullptr;
    if (peer == nullptr) return nullptr;
    const bool current = peer->up() && h.session == static_cast<std::uint32_t>(peer->handshake.own_session);
    // A short header answers an acknowledgement of this session, so the session was established before.
    if (h.type == wire::Type::short_data) return current ? peer : nullptr;
    if (h.source_rank != peer->rank) return nullptr;
    return current || sessions_.establish_by(now, *peer, d) ? peer : nullptr;
}

// A switch cut the payload off. The packet is not authentic: it may hasten the repair of a packet that has not arrived,
// nothing else.
void Arrivals::note_trimmed(Peer& peer, const wire::Header& h) {
    ++shared_.counters.trimmed_packets_received;
    credit_.trimmed();
    const PacketWindow& window = peer.session->receiver.window;
    std::vector<std::uint64_t>& numbers = peer.session->owed.trimmed_numbers;
    // All of a session's first packets may be trimmed.
    const std::uint64_t largest = window.empty() ? 0 : window.largest();
    if (h.packet_number >> 62 != 0 || !window.fresh(h.packet_number) || numbers.size() >= most_trimmed ||
        h.packet_number >= largest + PacketWindow::width)
        return;
    numbers.push_back(h.packet_number);
    shared_.queue_control(peer);
}

// A packet of this session: once, if it is authentic.
void Arrivals::take_packet(Time now, Time arrived, Peer& peer, const dlcp_packet& packet,
                           const wire::Datagram& d) {
    const wire::Header& h = d.header;
    if (h.packet_number >> 62 != 0) {
        ++shared_.counters.inconsistent;  // no session lives that long
        return;
    }
    ReceiverState& receiver = peer.session->receiver;
    if (!receiver.window.fresh(h.packet_number)) {
        ++shared_.counters.replayed;
        return;
    }
    if (!authentic(peer, packet, d)) return;
    peer.last_heard = now;
    peer.keepalive_tries = 0;
    touch(peer);
    if (wire::is_data(h.type)) {
        if (!incoming_.handle_data(now, arrived, peer, d)) {
            receiver.window.refuse(h.packet_number);  // not acknowledged; a duplicate is dropped
            return;
        }
        ++shared_.counters.data_packets_received;
        shared_.counters.data_bytes_received += h.payload_bytes;
        ++receiver.unacked_packets;
    } else {
        ++shared_.counters.control_packets_received;
    }
    const bool ce = (packet.tos & ecn_mask) == congestion_experienced;
    if (ce) {
        ++receiver.ce_packets;
        ++shared_.counters.ce_packets_received;
    }
    if (receiver.window.empty() || h.packet_number > receiver.window.largest()) receiver.largest_arrived_at = now;
    receiver.window.insert(h.packet_number, ce);
    if (h.flags & wire::flag::ack_request) peer.session->owed.ack = true;
    if (h.type == wire::Type::control) handle_control(now, arrived, peer, packet, d);
}

// A data packet that came in pieces.
void Arrivals::take_whole(const FramesIn& in, Peer& peer, const dlcp_packet& packet, const wire::Datagram& d) {
    take_packet(in.now, in.arrived, peer, packet, d);
}

void Arrivals::handle_control(Time now, Time arrived, Peer& peer, const dlcp_packet& packet,
                              const wire::Datagram& d) {
    if (d.payload == nullptr && d.header.payload_bytes > 0) return;  // virtual control carries nothing
    const FramesIn in{now, arrived, static_cast<std::uint32_t>(arrived.value) - d.header.timestamp_ns,
                      d.header.packet_number, packet};
    peer.session->receiver.delays.sample_control(now, in.delay_ns);
    wire::FrameReader reader({d.payload, d.header.payload_bytes});
    wire::Frame frame;
    while (peer.up() && reader.next(frame)) handle_frame(peer, in, frame);
    if (reader.malformed()) ++shared_.counters.malformed_frames;
    // Last: a goodbye or an outcome says more precisely than the floor how a message ended.
    if (peer.up()) incoming_.advance_floor(now, peer, d.header.message_id);
}

// After a batch: acknowledge at once, or set the time by which to acknowledge.
void Arrivals::acknowledge_batch(Time now, Peer& peer) {
    ReceiverState& receiver = peer.session->receiver;
    if (peer.session->owed.ack || receiver.unacked_packets >= ack_after_packets) {
        peer.session->owed.ack = true;
        shared_.queue_control(peer);
    } else if (receiver.unacked_packets > 0 && receiver.ack_at == time_never) {
        receiver.ack_at = now + shared_.config.max_ack_delay;
    }
    if (peer.waiting)
        liveness_.update(now, peer);  // and arms
    else
        shared_.arm(peer);
}

// The process at the other end of a channel has ended without a goodbye.
void Arrivals::handle_gone(Time now, const dlcp_address& address) {
    for (const auto& peer : shared_.peers) {
        const bool open = peer->up() || peer->state == PeerState::State::connecting;
        if (open && same_address(peer->address, address)) sessions_.peer_down(now, *peer, CommandError::peer_gone);
    }
}

}  // namespace dlcp

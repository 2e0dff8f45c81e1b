// Control packets: builds one from the frames owed to a peer, and passes each frame of an arriving one to its handler.
//
// Every frame is idempotent: it states a fact (what arrived, how a message ended), so losing or repeating it does no
// harm. A lost frame is repeated when the peer probes. The frames themselves: frame_writers.cpp, frame_handlers.cpp.
#include <algorithm>

#include "engine/datagram_sizes.hpp"
#include "engine/endpoint.hpp"
#include "engine/packet_builder.hpp"

namespace dlcp {

void Endpoint::queue_control(Peer& peer) {
    if (peer.control_queued) return;
    peer.control_queued = true;
    control_queue_.push(peer.index);
}

bool Endpoint::owes_control(const Peer& peer) const {
    if (peer.handshake.answer_due || peer.handshake.candidate_answer_due()) return true;
    if (peer.state == PeerState::State::connecting) return peer.handshake.due;
    return peer.up() && (peer.session->owed.any() || peer.session->sender.tests_due);
}

// Owes the sender an answer in the next control packet: how one of its messages ended, or that it must wait.
void Endpoint::answer(Peer& peer, std::uint32_t wire_id) {
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
    queue_control(peer);
}

// Builds one packet of what is owed: a hello, or as many frames as fit. False: nothing is owed.
bool Endpoint::write_control(Time now, Peer& peer, dlcp_packet& slot) {
    if (write_due_hello(now, peer, slot)) return true;
    if (!owes_control(peer)) return false;
    if (write_size_test(now, peer, slot)) return true;
    FramesOut out{now, wire::FrameWriter(slot.head + wire::header_bytes, control_bytes(peer))};
    write_frames(peer, out);
    if (out.writer.size() == 0 && peer.session->owed.probe_of_data) write_probe_of_data(peer, out);
    if (out.writer.size() == 0) return false;
    send_control(peer, out, slot);
    if (out.closing) {
        end_session(now, peer);
        // Wanted again since: a new session.
        if (!peer.outgoing.empty() || !peer.posted.empty()) start_handshake(now, peer);
    }
    arm(peer);
    return true;
}

// The room for frames in one control packet.
std::size_t Endpoint::control_bytes(const Peer& peer) const {
    const Session& session = *peer.session;
    const bool small = session.owed.small || session.sender.size_search.active();
    const std::size_t overhead = wire::header_bytes + (peer.protects() ? wire::tag_bytes : 0);
    // It lies in the head whole, where a channel's data need not: no more than the driver has room for there.
    const std::uint16_t most = std::min(peer.datagram_bytes, config_.max_datagram_bytes);
    return (small ? std::min(most, least_datagram) : most) - overhead;
}

// Makes a packet of the frames. A packet that asks for an acknowledgement enters the sent ring.
void Endpoint::send_control(Peer& peer, const FramesOut& out, dlcp_packet& slot) {
    SenderState& sender = peer.session->sender;
    const bool keyed = peer.protects();
    PacketBuilder packet(config_, wire::Type::control, wire::control_class, peer.handshake.peer_session, out.now);
    wire::Header& h = packet.header;
    h.flags = static_cast<std::uint8_t>((keyed ? wire::flag::authenticated : 0) |
                                        (keyed && config_.encrypt ? wire::flag::encrypted : 0) |
                                        (out.asks ? wire::flag::ack_request : 0));
    h.key_epoch = peer.session->keys.send_epoch();
    // Where nothing is answered, a proven path, and every second time any: what proved it may be of the past.
    const bool unanswered = sender.timeouts > 0 || peer.keepalive_tries > 1;
    const bool doubts = sender.timeouts > 1 ? sender.timeouts % 2 == 0 : peer.keepalive_tries > 1;
    h.path = out.tests_bytes != 0 ? sender.test_path
             : doubts             ? sender.paths.any(random_.next())
             : unanswered         ? sender.paths.any_proven(random_.next())
                                  : sender.paths.any_up(random_.next());
    h.message_id = sender.floor_told = sender.ids.base();
    h.payload_bytes = static_cast<std::uint16_t>(out.writer.size());
    // A packet that falls out of the receiver's window can no longer be acknowledged.
    while (sender.sent.full()) {
        const std::uint64_t oldest = sender.sent.oldest();
        if (!sender.sent[oldest].lost()) declare_lost(peer, oldest, SentPacket::Loss::overdue);
        sender.sent.resolve(oldest);
        sender.sent.trim();
    }
    if (out.asks) {
        h.packet_number = sender.sent.push(
            {.sent_at = out.now, .block = out.tests_bytes, .path = h.path, .traffic_class = out.traffic_class});
        sender.paths.on_sent(h.path);
    } else {
        h.packet_number = sender.sent.skip();
    }
    packet.write_inline(slot, peer.address, type_of_service(config_, out.traffic_class, Ecn::capable));
    if (out.tests_bytes != 0) slot.flags |= DLCP_PACKET_ALONE;
    if (keyed) PacketBuilder::seal(slot, peer.session->keys.send(), h.packet_number, config_.encrypt);
    sender.large_control |= out.tests_bytes == 0 && slot.head_bytes + slot.tail_bytes > least_datagram;
    peer.session->owed.small = peer.session->owed.small && peer.session->owed.any();
    ++counters_.control_packets_sent;
    counters_.control_bytes_sent += out.writer.size();
    counters_.header_bytes_sent += wire::header_bytes + (keyed ? wire::tag_bytes : 0);
}

void Endpoint::handle_control(Time now, Time arrived, Peer& peer, const dlcp_packet& packet,
                              const wire::Datagram& d) {
    if (d.payload == nullptr && d.header.payload_bytes > 0) return;  // virtual control carries nothing
    const FramesIn in{now, arrived, static_cast<std::uint32_t>(arrived.value) - d.header.timestamp_ns,
                      d.header.packet_number, packet};
    peer.session->receiver.delays.sample_control(now, in.delay_ns);
    wire::FrameReader reader({d.payload, d.header.payload_bytes});
    wire::Frame frame;
    while (peer.up() && reader.next(frame)) handle_frame(peer, in, frame);
    if (reader.malformed()) ++counters_.malformed_frames;
    // Last: a goodbye or an outcome says more precisely than the floor how a message ended.
    if (peer.up()) advance_floor(now, peer, d.header.message_id);
}

}  // namespace dlcp

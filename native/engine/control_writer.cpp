#include "engine/control_writer.hpp"

#include <algorithm>

#include "engine/datagram_sizes.hpp"
#include "engine/packet_builder.hpp"

namespace dlcp {

bool ControlWriter::owes(const Peer& peer) {
    if (peer.handshake.answer_due || peer.handshake.candidate_answer_due()) return true;
    if (peer.state == PeerState::State::connecting) return peer.handshake.due;
    return peer.up() && (peer.session->owed.any() || peer.session->sender.tests_due);
}

std::size_t ControlWriter::poll(Time now, std::span<dlcp_packet> slots) {
    std::size_t n = 0;
    while (n < slots.size() && !shared_.control_queue.empty()) {
        Peer& peer = *shared_.peers[shared_.control_queue.front()];
        if (write(now, peer, slots[n])) {
            ++n;
            if (owes(peer)) continue;  // more is owed than one packet holds
        }
        shared_.control_queue.pop();
        peer.control_queued = false;
    }
    return n;
}

// Builds one packet of what is owed: a hello, or as many frames as fit. False: nothing is owed.
bool ControlWriter::write(Time now, Peer& peer, dlcp_packet& slot) {
    if (sessions_.write_due_hello(now, peer, slot)) return true;
    if (!owes(peer)) return false;
    if (write_size_test(now, peer, slot)) return true;
    FramesOut out{now, wire::FrameWriter(slot.head + wire::header_bytes, room(peer))};
    write_frames(peer, out);
    if (out.writer.size() == 0 && peer.session->owed.probe_of_data) write_probe_of_data(peer, out);
    if (out.writer.size() == 0) return false;
    send(peer, out, slot);
    if (out.closing) {
        sessions_.end(now, peer);
        // Wanted again since: a new session.
        if (!peer.outgoing.empty() || !peer.posted.empty()) sessions_.start_if_idle(now, peer);
    }
    shared_.arm(peer);
    return true;
}

// The next packet of the round of tests. False: none is due.
bool ControlWriter::write_size_test(Time now, Peer& peer, dlcp_packet& slot) {
    if (!peer.up() || !peer.session->sender.tests_due) return false;
    SenderState& sender = peer.session->sender;
    const std::uint16_t bytes = sender.size_search.next_test();
    if (bytes == 0) {
        sender.tests_due = false;
        return false;
    }
    sender.size_search.on_test_sent();
    const std::size_t overhead = wire::header_bytes + (peer.protects() ? wire::tag_bytes : 0);
    FramesOut out{now, wire::FrameWriter(slot.head + wire::header_bytes, bytes - overhead)};
    out.writer.put_padding(bytes - overhead);
    out.asks = true;
    out.tests_bytes = bytes;
    send(peer, out, slot);
    return true;
}

// The room for frames in one control packet.
std::size_t ControlWriter::room(const Peer& peer) const {
    const Session& session = *peer.session;
    const bool small = session.owed.small || session.sender.size_search.active();
    const std::size_t overhead = wire::header_bytes + (peer.protects() ? wire::tag_bytes : 0);
    // It lies in the head whole, where a channel's data need not: no more than the driver has room for there.
    const std::uint16_t most = std::min(peer.datagram_bytes, shared_.config.max_datagram_bytes);
    return (small ? std::min(most, least_datagram) : most) - overhead;
}

// Makes a packet of the frames. A packet that asks for an acknowledgement enters the sent ring.
void ControlWriter::send(Peer& peer, const FramesOut& out, dlcp_packet& slot) {
    SenderState& sender = peer.session->sender;
    const bool keyed = peer.protects();
    PacketBuilder packet(shared_.config, wire::Type::control, wire::control_class, peer.handshake.peer_session,
                         out.now);
    wire::Header& h = packet.header;
    h.flags = static_cast<std::uint8_t>((keyed ? wire::flag::authenticated : 0) |
                                        (keyed && shared_.config.encrypt ? wire::flag::encrypted : 0) |
                                        (out.asks ? wire::flag::ack_request : 0));
    h.key_epoch = peer.session->keys.send_epoch();
    // Where nothing is answered, a proven path, and every second time any: what proved it may be of the past.
    const bool unanswered = sender.timeouts > 0 || peer.keepalive_tries > 1;
    const bool doubts = sender.timeouts > 1 ? sender.timeouts % 2 == 0 : peer.keepalive_tries > 1;
    h.path = out.tests_bytes != 0 ? sender.test_path
             : doubts             ? sender.paths.any(shared_.random.next())
             : unanswered         ? sender.paths.any_proven(shared_.random.next())
                                  : sender.paths.any_up(shared_.random.next());
    h.message_id = sender.floor_told = sender.ids.base();
    h.payload_bytes = static_cast<std::uint16_t>(out.writer.size());
    recovery_.make_room(peer);
    if (out.asks) {
        h.packet_number = sender.sent.push(
            {.sent_at = out.now, .block = out.tests_bytes, .path = h.path, .traffic_class = out.traffic_class});
        sender.paths.on_sent(h.path);
    } else {
        h.packet_number = sender.sent.skip();
    }
    packet.write_inline(slot, peer.address, type_of_service(shared_.config, out.traffic_class, Ecn::capable));
    if (out.tests_bytes != 0) slot.flags |= DLCP_PACKET_ALONE;
    if (keyed) PacketBuilder::seal(slot, peer.session->keys.send(), h.packet_number, shared_.config.encrypt);
    sender.large_control |= out.tests_bytes == 0 && slot.head_bytes + slot.tail_bytes > least_datagram;
    peer.session->owed.small = peer.session->owed.small && peer.session->owed.any();
    ++shared_.counters.control_packets_sent;
    shared_.counters.control_bytes_sent += out.writer.size();
    shared_.counters.header_bytes_sent += wire::header_bytes + (keyed ? wire::tag_bytes : 0);
}

}  // namespace dlcp

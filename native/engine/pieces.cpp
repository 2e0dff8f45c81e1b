// Data packets that are larger than their path carries: out in pieces, and back together.
//
// A message keeps the blocks that it started with: both sides count by them. If the path has stopped to carry such a
// block (path_size.cpp), the data packet is made as always, with its own number and tag, and its bytes travel in control
// packets of the same path and queue. At the other end it is taken as if it had come in one. So only the size of what is
// on the wire differs: acknowledgements, losses and repairs are of whole data packets, and a lost piece loses its packet.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "engine/endpoint.hpp"
#include "engine/packet_builder.hpp"

namespace dlcp {

// Bytes of a data packet in one piece.
std::size_t Endpoint::piece_bytes(const Peer& peer, bool keyed) {
    return peer.datagram_bytes - wire::header_bytes - (keyed ? wire::tag_bytes : 0) - wire::frame_prefix_bytes -
           wire::piece_body_bytes;
}

std::size_t Endpoint::pieces_of(const Peer& peer, bool keyed, std::size_t datagram_bytes) {
    return (datagram_bytes - 1) / piece_bytes(peer, keyed) + 1;
}

// Keeps a copy of the packet in the slot; send_pieces() sends it. The numbers before the packet's own are its pieces'.
void Endpoint::cut_into_pieces(Peer& peer, const dlcp_packet& packet, const wire::Header& h) {
    const std::size_t datagram_bytes = std::size_t{packet.head_bytes} + packet.body_bytes + packet.tail_bytes;
    pieces_.is_virtual = (packet.flags & DLCP_PACKET_VIRTUAL) != 0;
    pieces_.bytes.assign(datagram_bytes, 0);
    std::uint8_t* out = pieces_.bytes.data();
    std::memcpy(out, packet.head, packet.head_bytes);
    out += packet.head_bytes;
    if (packet.body != nullptr) {
        std::memcpy(out, packet.body, packet.body_bytes);
        out += packet.body_bytes;
    }
    std::memcpy(out, packet.head + packet.head_bytes, packet.tail_bytes);
    pieces_.number = h.packet_number;
    pieces_.piece_number = h.packet_number - pieces_of(peer, peer.protects(), datagram_bytes);
    pieces_.offset = 0;
    pieces_.peer = peer.index;
    pieces_.session = peer.handshake.peer_session;
    pieces_.path = h.path;
    pieces_.traffic_class = h.traffic_class;
    pieces_.pending = true;
}

// Pieces that have not left stay where they are: their packet counts as lost.
void Endpoint::forget_pieces(const Peer& peer) {
    if (pieces_.peer == peer.index) pieces_.pending = false;
}

// Writes what is left of the pieces into the slots, as far as it fits. Returns how many packets.
std::size_t Endpoint::send_pieces(Time now, std::span<dlcp_packet> slots) {
    std::size_t n = 0;
    if (!pieces_.pending) return 0;
    Peer& peer = *peers_[pieces_.peer];
    if (!peer.up() || peer.handshake.peer_session != pieces_.session) {
        pieces_.pending = false;
        return 0;
    }
    const bool keyed = peer.protects();
    const std::size_t most = piece_bytes(peer, keyed);
    for (; n < slots.size() && pieces_.pending; ++n) {
        dlcp_packet& slot = slots[n];
        const std::size_t bytes = std::min(most, pieces_.bytes.size() - pieces_.offset);
        wire::FrameWriter writer(slot.head + wire::header_bytes,
                                 bytes + wire::frame_prefix_bytes + wire::piece_body_bytes);
        wire::write_piece(writer,
                          {.packet_number = pieces_.number,
                           .datagram_bytes = static_cast<std::uint16_t>(pieces_.bytes.size()),
                           .offset = static_cast<std::uint16_t>(pieces_.offset),
                           .bytes = {pieces_.bytes.data() + pieces_.offset, bytes}},
                          pieces_.is_virtual ? wire::piece_flag_virtual : std::uint8_t{0});
        PacketBuilder packet(config_, wire::Type::control, wire::control_class, pieces_.session, now);
        wire::Header& h = packet.header;
        h.flags = static_cast<std::uint8_t>((keyed ? wire::flag::authenticated : 0) |
                                            (keyed && config_.encrypt ? wire::flag::encrypted : 0));
        h.key_epoch = peer.session->keys.send_epoch();
        h.path = pieces_.path;
        h.message_id = peer.session->sender.floor_told = peer.session->sender.ids.base();
        h.payload_bytes = static_cast<std::uint16_t>(writer.size());
        assert(pieces_.piece_number < pieces_.number);
        h.packet_number = pieces_.piece_number++;
        packet.write_inline(slot, peer.address, type_of_service(config_, pieces_.traffic_class, Ecn::capable));
        if (keyed) PacketBuilder::seal(slot, peer.session->keys.send(), h.packet_number, config_.encrypt);
        pieces_.offset += bytes;
        pieces_.pending = pieces_.offset < pieces_.bytes.size();
        ++counters_.control_packets_sent;
        counters_.control_bytes_sent += wire::frame_prefix_bytes + wire::piece_body_bytes;
        counters_.header_bytes_sent += wire::header_bytes + (keyed ? wire::tag_bytes : 0);
    }
    return n;
}

void Endpoint::handle_piece(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    constexpr std::uint8_t congestion_experienced = 3;
    constexpr std::uint64_t most_pieces = 256;
    wire::Piece piece;
    if (!wire::read_piece(frame, piece)) {
        ++counters_.malformed_frames;
        return;
    }
    // The pieces of a packet have the numbers just before its own. So nobody fills the room with packets that never come.
    if (piece.packet_number <= in.number || piece.packet_number - in.number > most_pieces ||
        (frame.flags & wire::piece_flag_virtual && !config_.virtual_payload)) {
        ++counters_.inconsistent;
        return;
    }
    const bool marked = (in.packet.tos & congestion_experienced) == congestion_experienced;
    Reassembly::Partial* const whole = peer.session->receiver.reassembly.add(
        piece.packet_number, piece.datagram_bytes, piece.offset, piece.bytes, marked);
    if (whole == nullptr) return;
    dlcp_packet packet = in.packet;
    packet.head = whole->bytes.data();
    packet.head_bytes = whole->length;
    packet.body_bytes = 0;
    if (frame.flags & wire::piece_flag_virtual && whole->length >= wire::header_bytes) {
        const bool tagged = (whole->bytes[wire::flags_offset] & wire::flag::authenticated) != 0;
        packet.head_bytes = static_cast<std::uint32_t>(wire::header_bytes + (tagged ? wire::tag_bytes : 0));
        packet.body_bytes = whole->length - std::min<std::uint32_t>(packet.head_bytes, whole->length);
    }
    packet.tos = static_cast<std::uint8_t>(packet.tos | (whole->marked ? congestion_experienced : 0));
    wire::Datagram d;
    const wire::ParseError error =
        wire::parse({packet.head, std::min<std::size_t>(packet.head_bytes, whole->length)}, packet.body_bytes, d);
    const wire::Header& h = d.header;
    // Of this session, and the packet that its pieces name: it takes no other's place.
    if (error != wire::ParseError::none || h.type != wire::Type::data || h.flags & wire::flag::trimmed ||
        h.job != config_.job || h.source_rank != peer.rank || h.packet_number != piece.packet_number ||
        h.session != static_cast<std::uint32_t>(peer.handshake.own_session)) {
        ++counters_.inconsistent;
        return;
    }
    take_whole(in, peer, packet, d);
}

}  // namespace dlcp

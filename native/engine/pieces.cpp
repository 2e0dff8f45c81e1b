#include "engine/pieces.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "engine/frames.hpp"
#include "engine/packet_builder.hpp"

namespace dlcp {

std::size_t Pieces::bytes_each(const Peer& peer, bool keyed) {
    return peer.datagram_bytes - wire::header_bytes - (keyed ? wire::tag_bytes : 0) - wire::frame_prefix_bytes -
           wire::piece_body_bytes;
}

std::size_t Pieces::count(const Peer& peer, bool keyed, std::size_t datagram_bytes) {
    return (datagram_bytes - 1) / bytes_each(peer, keyed) + 1;
}

void Pieces::cut(Peer& peer, const dlcp_packet& packet, const wire::Header& h) {
    const std::size_t datagram_bytes = std::size_t{packet.head_bytes} + packet.body_bytes + packet.tail_bytes;
    is_virtual_ = (packet.flags & DLCP_PACKET_VIRTUAL) != 0;
    bytes_.assign(datagram_bytes, 0);
    std::uint8_t* out = bytes_.data();
    std::memcpy(out, packet.head, packet.head_bytes);
    out += packet.head_bytes;
    if (packet.body != nullptr) {
        std::memcpy(out, packet.body, packet.body_bytes);
        out += packet.body_bytes;
    }
    std::memcpy(out, packet.head + packet.head_bytes, packet.tail_bytes);
    number_ = h.packet_number;
    piece_number_ = h.packet_number - count(peer, peer.protects(), datagram_bytes);
    offset_ = 0;
    peer_ = peer.index;
    session_ = peer.handshake.peer_session;
    path_ = h.path;
    traffic_class_ = h.traffic_class;
    pending_ = true;
}

std::size_t Pieces::send(Time now, std::span<dlcp_packet> slots) {
    std::size_t n = 0;
    Peer& peer = *shared_.peers[peer_];
    if (!peer.up() || peer.handshake.peer_session != session_) {
        pending_ = false;
        return 0;
    }
    const bool keyed = peer.protects();
    const std::size_t most = bytes_each(peer, keyed);
    for (; n < slots.size() && pending_; ++n) {
        dlcp_packet& slot = slots[n];
        const std::size_t bytes = std::min(most, bytes_.size() - offset_);
        wire::FrameWriter writer(slot.head + wire::header_bytes,
                                 bytes + wire::frame_prefix_bytes + wire::piece_body_bytes);
        wire::write_piece(writer,
                          {.packet_number = number_,
                           .datagram_bytes = static_cast<std::uint16_t>(bytes_.size()),
                           .offset = static_cast<std::uint16_t>(offset_),
                           .bytes = {bytes_.data() + offset_, bytes}},
                          is_virtual_ ? wire::piece_flag_virtual : std::uint8_t{0});
        PacketBuilder packet(shared_.config, wire::Type::control, wire::control_class, session_, now);
        wire::Header& h = packet.header;
        h.flags = static_cast<std::uint8_t>((keyed ? wire::flag::authenticated : 0) |
                                            (keyed && shared_.config.encrypt ? wire::flag::encrypted : 0));
        h.key_epoch = peer.session->keys.send_epoch();
        h.path = path_;
        h.message_id = peer.session->sender.floor_told = peer.session->sender.ids.base();
        h.payload_bytes = static_cast<std::uint16_t>(writer.size());
        assert(piece_number_ < number_);
        h.packet_number = piece_number_++;
        packet.write_inline(slot, peer.address, type_of_service(shared_.config, traffic_class_, Ecn::capable));
        if (keyed) PacketBuilder::seal(slot, peer.session->keys.send(), h.packet_number, shared_.config.encrypt);
        offset_ += bytes;
        pending_ = offset_ < bytes_.size();
        ++shared_.counters.control_packets_sent;
        shared_.counters.control_bytes_sent += wire::frame_prefix_bytes + wire::piece_body_bytes;
        shared_.counters.header_bytes_sent += wire::header_bytes + (keyed ? wire::tag_bytes : 0);
    }
    return n;
}

}  // namespace dlcp

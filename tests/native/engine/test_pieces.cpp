// Pieces: a packet that is larger than its path carries leaves in packets that are not.
#include <doctest/doctest.h>

#include <cstring>

#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

constexpr std::size_t datagram_bytes = 3000;

// A peer whose path carries 1,000 bytes, and a packet for it of which each byte says where it was.
struct Cut : EngineParts {
    Peer& peer = add_established(1);
    std::vector<std::uint8_t> datagram = std::vector<std::uint8_t>(datagram_bytes);

    Cut() {
        peer.datagram_bytes = 1000;
        for (std::size_t i = 0; i < datagram.size(); ++i) datagram[i] = static_cast<std::uint8_t>(i % 251);
        const std::size_t count = Pieces::count(peer, false, datagram.size());
        for (std::size_t i = 0; i < count; ++i) peer.session->sender.sent.skip();
        wire::Header header;
        header.packet_number = peer.session->sender.sent.skip();
        dlcp_packet packet{};
        packet.head = datagram.data();
        packet.head_bytes = static_cast<std::uint32_t>(datagram.size());
        pieces.cut(peer, packet, header);
    }
};

TEST_CASE("pieces: all bytes leave once, in packets that the path carries, numbered before their own") {
    Cut cut;
    Slots slots(8);
    std::size_t packets = cut.pieces.send(Time{0}, slots.all().first(1));  // the rest waits for room
    REQUIRE(cut.pieces.pending());
    packets += cut.pieces.send(Time{0}, slots.all().subspan(1));
    CHECK_FALSE(cut.pieces.pending());
    CHECK(packets == Pieces::count(cut.peer, false, datagram_bytes));
    std::vector<std::uint8_t> whole(datagram_bytes);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < packets; ++i) {
        CHECK(slots.packets[i].head_bytes <= cut.peer.datagram_bytes);
        const wire::Datagram packet = slots.read(i);
        CHECK(packet.header.packet_number == i);
        wire::FrameReader reader({packet.payload, packet.header.payload_bytes});
        wire::Frame frame;
        wire::Piece piece;
        REQUIRE(reader.next(frame));
        REQUIRE(wire::read_piece(frame, piece));
        CHECK(piece.packet_number == packets);
        std::memcpy(whole.data() + piece.offset, piece.bytes.data(), piece.bytes.size());
        bytes += piece.bytes.size();
    }
    CHECK(bytes == datagram_bytes);
    CHECK(whole == cut.datagram);
}

TEST_CASE("pieces: of a session that has ended nothing leaves") {
    for (const bool restarted : {false, true}) {
        CAPTURE(restarted);
        Cut cut;
        if (restarted)
            cut.peer.handshake.peer_session = 77;
        else
            cut.pieces.forget(cut.peer);
        Slots slots(8);
        CHECK((!cut.pieces.pending() || cut.pieces.send(Time{0}, slots.all()) == 0));
        CHECK_FALSE(cut.pieces.pending());
    }
}

}  // namespace
}  // namespace dlcp::test

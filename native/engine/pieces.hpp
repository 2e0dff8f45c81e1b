// Data packets that are larger than their path carries: out in pieces.
//
// A message keeps the blocks that it started with: both sides count by them. If the path has stopped to carry such a
// block (path_size.cpp), the data packet is made as always, with its own number and tag, and its bytes travel in control
// packets of the same path and queue. At the other end it is taken as if it had come in one (Arrivals::handle_piece). So
// only the size of what is on the wire differs: acknowledgements, losses and repairs are of whole data packets, and a
// lost piece loses its packet.
//
// The endpoint has at most one packet in pieces: they leave before anything else, so that packet numbers leave in order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/prefetch.hpp"
#include "engine/shared_state.hpp"

namespace dlcp {

class Pieces {
public:
    explicit Pieces(SharedState& shared) : shared_(shared) {}

    // Bytes of a data packet in one piece, and how many pieces a packet has.
    static std::size_t bytes_each(const Peer& peer, bool keyed);
    static std::size_t count(const Peer& peer, bool keyed, std::size_t datagram_bytes);
    // Keeps a copy of the packet; send() sends it. The numbers before the packet's own are its pieces'.
    void cut(Peer& peer, const dlcp_packet& packet, const wire::Header& header);
    // Pieces that have not left stay where they are: their packet counts as lost.
    void forget(const Peer& peer) {
        if (peer_ == peer.index) pending_ = false;
    }
    bool pending() const { return pending_; }
    void prefetch() const { dlcp::prefetch(&pending_); }
    // While pending: writes what is left of the pieces into the slots, as far as it fits. Returns how many packets.
    std::size_t send(Time now, std::span<dlcp_packet> slots);

private:
    SharedState& shared_;
    std::vector<std::uint8_t> bytes_;  // the datagram: header, payload, tag; virtual: header, tag, and zeros
    bool is_virtual_ = false;
    std::uint64_t number_ = 0;        // its packet number
    std::size_t offset_ = 0;          // of the next piece
    std::uint64_t piece_number_ = 0;  // packet number of the next piece
    std::uint32_t peer_ = 0;
    std::uint64_t session_ = 0;  // the peer's; pieces of a session that ended do not leave
    std::uint16_t path_ = 0;
    std::uint8_t traffic_class_ = 0;
    bool pending_ = false;
};

}  // namespace dlcp

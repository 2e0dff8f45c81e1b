// One datagram that is larger than its path carries, on its way out in pieces.
//
// The endpoint has at most one: its pieces leave before anything else, so that packet numbers leave in order.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/units.hpp"

namespace dlcp {

struct Pieces {
    std::vector<std::uint8_t> bytes;  // the datagram: header, payload, tag; virtual: header, tag, and zeros
    bool is_virtual = false;
    std::uint64_t number = 0;        // its packet number
    std::size_t offset = 0;          // of the next piece
    std::uint64_t piece_number = 0;  // packet number of the next piece
    std::uint32_t peer = 0;
    std::uint64_t session = 0;  // the peer's; pieces of a session that ended do not leave
    std::uint16_t path = 0;
    std::uint8_t traffic_class = 0;
    bool pending = false;
};

}  // namespace dlcp

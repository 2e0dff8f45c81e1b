// Neighbour solicitations and advertisements (RFC 4861, 4.3 and 4.4): the ICMPv6 message, without the IP header.
//
//      0    1    2 3       4      5 6 7  8 … 23   24   25    26 … 31
//     type code checksum  flags  0      target   1/2  1     Ethernet address      (the option may be missing)
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ipstack/address.hpp"

namespace dlcp::ipstack {

inline constexpr std::uint32_t neighbour_message_bytes = 32;  // with the option
inline constexpr std::uint8_t neighbour_hop_limit = 255;      // so that it cannot come from beyond the link
inline constexpr IpAddress all_nodes_group{.bytes = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
                                           .bits = 128};

struct NeighbourMessage {
    enum class Type : std::uint8_t { solicitation = 135, advertisement = 136 };
    Type type = Type::solicitation;
    // Of an advertisement: it answers a question; it replaces what is known.
    bool solicited = false;
    bool overrides = false;
    IpAddress target;
    // Of the source in a solicitation, of the target in an advertisement.
    std::optional<MacAddress> mac;
};

// Checks all that RFC 4861, 7.1.1 and 7.1.2 ask but the checksum: hop limit, code, lengths, addresses, options.
// `message` is the ICMPv6 message, of type 135 or 136.
std::optional<NeighbourMessage> parse_neighbour_message(std::span<const std::uint8_t> message,
                                                        const IpAddress& source, const IpAddress& destination,
                                                        std::uint8_t hop_limit);
// Writes neighbour_message_bytes, or 8 fewer without a MAC; checksum 0. Answers how many.
std::uint32_t write_neighbour_message(const NeighbourMessage& message, std::uint8_t* at);

}  // namespace dlcp::ipstack

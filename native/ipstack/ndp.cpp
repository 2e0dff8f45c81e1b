// Reads and writes solicitations and advertisements, with their options.
#include "ipstack/ndp.hpp"

#include <cstring>

#include "ipstack/network.hpp"

namespace dlcp::ipstack {

namespace {

constexpr std::uint32_t fixed_bytes = 24;
constexpr std::uint8_t flag_solicited = 0x40, flag_override = 0x20;
constexpr std::uint8_t option_source = 1, option_target = 2;

std::uint8_t option_of(NeighbourMessage::Type type) {
    return type == NeighbourMessage::Type::solicitation ? option_source : option_target;
}

}  // namespace

std::optional<NeighbourMessage> parse_neighbour_message(std::span<const std::uint8_t> message,
                                                        const IpAddress& source, const IpAddress& destination,
                                                        std::uint8_t hop_limit) {
    if (hop_limit != neighbour_hop_limit || message.size() < fixed_bytes || message[1] != 0) return std::nullopt;
    NeighbourMessage out;
    out.type = static_cast<NeighbourMessage::Type>(message[0]);
    out.target = ip_at(message.data() + 8, true);
    if (is_multicast(out.target) || is_unspecified(out.target)) return std::nullopt;
    const bool is_solicitation = out.type == NeighbourMessage::Type::solicitation;
    if (!is_solicitation) {
        out.solicited = (message[4] & flag_solicited) != 0;
        out.overrides = (message[4] & flag_override) != 0;
        if (out.solicited && is_multicast(destination)) return std::nullopt;
    }
    for (std::size_t at = fixed_bytes; at < message.size();) {
        // Type, length in units of 8 bytes, contents.
        if (message.size() - at < 8) return std::nullopt;
        const std::size_t bytes = message[at + 1] * std::size_t{8};
        if (bytes == 0 || bytes > message.size() - at) return std::nullopt;
        if (message[at] == option_of(out.type) && bytes == 8) {
            out.mac.emplace();
            std::memcpy(out.mac->data(), message.data() + at + 2, 6);
        }
        at += bytes;
    }
    if (is_solicitation && is_unspecified(source) && (out.mac || destination != solicited_node(out.target)))
        return std::nullopt;
    return out;
}

std::uint32_t write_neighbour_message(const NeighbourMessage& message, std::uint8_t* at) {
    std::memset(at, 0, fixed_bytes);
    at[0] = static_cast<std::uint8_t>(message.type);
    at[4] = static_cast<std::uint8_t>((message.solicited ? flag_solicited : 0) |
                                      (message.overrides ? flag_override : 0));
    std::memcpy(at + 8, message.target.bytes.data(), 16);
    if (!message.mac) return fixed_bytes;
    at[24] = option_of(message.type);
    at[25] = 1;
    std::memcpy(at + 26, message.mac->data(), 6);
    return neighbour_message_bytes;
}

}  // namespace dlcp::ipstack

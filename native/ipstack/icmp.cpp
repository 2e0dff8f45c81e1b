// Checks and answers echo requests.
#include "ipstack/icmp.hpp"

#include <cstring>

namespace dlcp::ipstack {

namespace {

// Only ICMPv6 covers a pseudo header (RFC 4443, 2.3).
std::uint64_t sum_of(const std::uint8_t* message, std::uint32_t bytes, const std::uint8_t* source,
                     const std::uint8_t* destination, bool is_v6) {
    const std::uint64_t pseudo = is_v6 ? pseudo_header_sum(source, destination, true, protocol_icmpv6, bytes) : 0;
    return add_words(pseudo, message, bytes);
}

}  // namespace

bool icmp_checksum_holds(const NetworkPacket& packet) {
    return fold(sum_of(packet.payload, packet.payload_bytes, packet.source, packet.destination, packet.is_v6)) ==
           0xffff;
}

void write_icmp_checksum(std::span<std::uint8_t> message, const IpAddress& source, const IpAddress& destination) {
    std::memset(message.data() + 2, 0, 2);
    const std::uint16_t checksum =
        static_cast<std::uint16_t>(~fold(sum_of(message.data(), static_cast<std::uint32_t>(message.size()),
                                                source.bytes.data(), destination.bytes.data(), source.is_v6())));
    std::memcpy(message.data() + 2, &checksum, sizeof checksum);
}

void write_echo_reply(std::span<const std::uint8_t> request, bool is_v6, std::uint8_t* at) {
    std::memcpy(at, request.data(), request.size());
    at[0] = is_v6 ? icmpv6_echo_reply : icmp_echo_reply;
    std::memset(at + 1, 0, 3);
}

}  // namespace dlcp::ipstack

// The Internet checksum (RFC 1071), for frames that the kernel left to an interface's hardware to complete.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace dlcp::softswitch {

// Of the bytes as they lie in memory, so to be stored as it is; the order of bytes does not matter to the sum.
inline std::uint16_t internet_checksum(std::span<const std::uint8_t> bytes) {
    std::uint64_t sum = 0;
    std::size_t i = 0;
    for (; i + 4 <= bytes.size(); i += 4) {
        std::uint32_t word;
        std::memcpy(&word, &bytes[i], 4);
        sum += word;
    }
    std::uint32_t rest = 0;
    std::memcpy(&rest, bytes.data() + i, bytes.size() - i);
    sum += rest;
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

}  // namespace dlcp::softswitch

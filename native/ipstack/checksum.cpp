// Sums in 64-bit steps, over pieces that begin at any offset.
#include "ipstack/checksum.hpp"

#include <cstring>

namespace dlcp::ipstack {

std::uint64_t add_words(std::uint64_t sum, const void* data, std::size_t bytes) {
    const auto* p = static_cast<const std::uint8_t*>(data);
    // 32-bit words into 64 bits: no carries to keep, four billion words before they could overflow, and a loop that
    // compilers turn into vector additions. 2^16 and 2^32 are both 1 modulo 2^16 - 1, so the width does not matter.
    const std::size_t words = bytes / 4;
    for (std::size_t i = 0; i < words; ++i) {
        std::uint32_t word;
        std::memcpy(&word, p + 4 * i, sizeof word);
        sum += word;
    }
    p += 4 * words;
    if ((bytes & 2) != 0) {
        std::uint16_t word;
        std::memcpy(&word, p, sizeof word);
        sum += word;
        p += 2;
    }
    if ((bytes & 1) != 0) {
        const std::uint8_t last[2] = {*p, 0};
        std::uint16_t word;
        std::memcpy(&word, last, sizeof word);
        sum += word;
    }
    return sum;
}

std::uint64_t add_piece(std::uint64_t sum, const void* data, std::size_t bytes, std::size_t offset) {
    if (offset % 2 == 0) return add_words(sum, data, bytes);
    return sum + __builtin_bswap16(fold(add_words(0, data, bytes)));
}

std::uint64_t copy_piece(std::uint64_t sum, void* to, const void* data, std::size_t bytes, std::size_t offset) {
    auto* __restrict out = static_cast<std::uint8_t*>(to);
    const auto* __restrict in = static_cast<const std::uint8_t*>(data);
    const std::size_t words = bytes / 4;
    std::uint64_t piece = 0;
    for (std::size_t i = 0; i < words; ++i) {
        std::uint32_t word;
        std::memcpy(&word, in + 4 * i, sizeof word);
        std::memcpy(out + 4 * i, &word, sizeof word);
        piece += word;
    }
    std::memcpy(out + 4 * words, in + 4 * words, bytes % 4);
    piece = add_words(piece, in + 4 * words, bytes % 4);
    return sum + (offset % 2 == 0 ? piece : __builtin_bswap16(fold(piece)));
}

std::uint16_t fold(std::uint64_t sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

}  // namespace dlcp::ipstack

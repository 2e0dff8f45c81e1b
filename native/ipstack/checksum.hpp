// The Internet checksum (RFC 1071): one's complement sums of 16-bit words, kept unfolded in 64 bits.
//
// Words are summed as they lie in memory; the sum of byte-swapped words is the byte-swapped sum, so nothing is swapped
// until a result is compared with a number. A piece that begins at an odd offset of the whole counts byte-swapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dlcp::ipstack {

// `sum` plus the words of `data`. An odd last byte counts as the first of a word.
std::uint64_t add_words(std::uint64_t sum, const void* data, std::size_t bytes);
// The same for a piece that lies `offset` bytes into the whole.
std::uint64_t add_piece(std::uint64_t sum, const void* data, std::size_t bytes, std::size_t offset);
// The same while it is copied to `to`, elsewhere: a pass over the data less.
std::uint64_t copy_piece(std::uint64_t sum, void* to, const void* data, std::size_t bytes, std::size_t offset);
// Folded to 16 bits, not complemented, in memory order.
std::uint16_t fold(std::uint64_t sum);

// Whether an IPv4 header without options has the checksum that it should (RFC 791, 3.1). In line, for it is asked of
// each packet received.
inline bool ipv4_checksum_holds(const std::uint8_t* header) {
    std::uint64_t sum = 0;
    for (int i = 0; i < 5; ++i) {
        std::uint32_t word;
        std::memcpy(&word, header + 4 * i, sizeof word);
        sum += word;
    }
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum) == 0xffff;
}

}  // namespace dlcp::ipstack

// Floating point as integers with one exponent per block, so that a switch can add it: the rules of
// dlcp/switch/aggregation/quantise.py, whose results these have bit for bit.
//
// A block's code says its exponent: 0 all zero, 1 … 254 exponent + 126, 255 not finite. The larger code wins, so ranks
// agree by a maximum. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dlcp::aggregation {

inline constexpr std::uint8_t code_zero = 0;
inline constexpr std::uint8_t code_not_finite = 255;
inline constexpr int code_bias = 126;

// So many bits below the exponent, so that the sum of all workers fits into 31.
int value_bits(std::uint32_t workers);

// The code of each block of `lanes` values; the last block may be shorter.
void exponent_codes(std::span<const float> values, std::uint32_t lanes, std::uint8_t* codes);

// The values of one block as a packet carries them, in network order; lanes behind their end are 0.
void quantise(std::span<const float> values, std::uint8_t code, int bits, std::uint32_t lanes,
              std::uint8_t* packet);

// What a packet's values stand for, rounded to float32 and then divided by `divisor`; as many as `out` takes.
void dequantise(const std::uint8_t* packet, std::uint8_t code, int bits, float divisor, std::span<float> out);

}  // namespace dlcp::aggregation

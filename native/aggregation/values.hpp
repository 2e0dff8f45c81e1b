// Floating point as integers with one exponent per block, so that a switch can add it.
//
// A block's exponent is the least e with |x| < 2^e for all its values. Ranks agree on the largest of theirs, and each
// sends rint(x * 2^(k - e)), clipped to +-(2^k - 1); k leaves room for the sum of all ranks. So a sum is exact in
// integers. A rank is off by half a step of 2^(e - k), by a whole one where it clipped: for 32 ranks 2^-26 of 2^e, less
// than what float32 loses at the block's largest values. tests/support/aggregation_values.py is the same, slow.
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

// Bits of a value's field in a lane: one value of 32 bits, two of 16 or four of 8, which a switch adds without knowing
// (THC, NSDI'24, has tables for it; here fields are signed, and a carry is undone when the sum is read).
inline constexpr bool is_width(std::uint32_t width) { return width == 32 || width == 16 || width == 8; }
inline constexpr std::uint32_t values_per_block(std::uint32_t lanes, std::uint32_t width) {
    return lanes * (32 / width);
}

// So many bits below the exponent, so that the sum of all workers fits into a field beside its sign.
int value_bits(std::uint32_t workers, std::uint32_t width = 32);

// The code of each block of so many values; the last block may be shorter.
void exponent_codes(std::span<const float> values, std::uint32_t per_block, std::uint8_t* codes);

// The values of one block as a packet carries them, in network order: value i is in lane i modulo the lanes. What lies
// behind their end is 0.
void quantise(std::span<const float> values, std::uint8_t code, int bits, std::uint32_t width, std::uint32_t lanes,
              std::uint8_t* packet);

// What the sums of a packet stand for, rounded to float32 and then divided by `divisor`; as many as `out` takes.
void dequantise(const std::uint8_t* packet, std::uint8_t code, int bits, std::uint32_t width, std::uint32_t lanes,
                float divisor, std::span<float> out);

}  // namespace dlcp::aggregation

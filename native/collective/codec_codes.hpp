// One code: from a value over its group's scale to bits, and back, for each codec (codec.hpp). Included by one file per
// variant only (see kernels.hpp).
#pragma once

#include "collective/codec_words.hpp"
#include "collective/reduce_element.hpp"

namespace dlcp {
namespace {

inline constexpr std::uint32_t infinity_bits = 0x7f80'0000;
inline constexpr std::uint32_t nan_bits = 0x7fc0'0000;
// Added to a float below 2^22, it rounds the float to an integer, nearest and ties to even, in its lowest bits.
inline constexpr float rounding = 12582912.0f;  // 1.5 * 2^23
inline constexpr std::uint32_t rounding_bits = 0x4b40'0000;

constexpr float power_of_two(int exponent) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(127 + exponent) << 23);
}

struct Coded {
    Words code;    // no bits above its own
    Floats value;  // what the code stands for
};

template <unsigned bits>
struct IntegerCode {
    static constexpr std::uint32_t one = 1;
    static constexpr std::uint32_t minus_one = CodeWords<bits>::mask;

    static Coded encode(Floats scaled) {
        static_assert((rounding_bits & CodeWords<bits>::mask) == 0);  // so a code's own bits are those of the sum
        const Floats rounded = scaled + rounding;
        return {(Words)rounded & CodeWords<bits>::mask, rounded - rounding};
    }
    static Floats decode(Words code) {
        constexpr int above = 32 - static_cast<int>(bits);
        return __builtin_convertvector((Ints)(code << above) >> above, Floats);
    }
};

// A float of 1 sign bit, `exponent_bits` and `mantissa_bits`, with subnormals.
template <unsigned exponent_bits, unsigned mantissa_bits>
struct SmallFloat {
    static constexpr unsigned bits = 1 + exponent_bits + mantissa_bits;
    static constexpr std::uint32_t sign = 1u << (bits - 1);
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    static constexpr unsigned shift = 23 - mantissa_bits;
    static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - bias) << mantissa_bits;
    static constexpr std::uint32_t one = static_cast<std::uint32_t>(bias) << mantissa_bits;
    static constexpr std::uint32_t minus_one = one | sign;
    static constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(128 - bias) << 23;  // as f32
    static constexpr int subnormal_exponent = 1 - bias - static_cast<int>(mantissa_bits);

    // Of magnitudes at most the largest of the format.
    static Words magnitude(Words wide) {
        const Words normal = ((wide + ((1u << (shift - 1)) - 1) + (wide >> shift & 1u)) >> shift) - rebias;
        if constexpr (exponent_bits == 8) {
            return normal;  // bfloat16: subnormals round alike
        } else {
            const Floats steps = (Floats)wide * power_of_two(-subnormal_exponent) + rounding;
            return wide < least_normal ? (Words)steps - rounding_bits : normal;
        }
    }
    static Floats decode(Words code) {
        const Words magnitude = code & (sign - 1);
        const Words signs = (code & sign) << (32 - bits);
        Words wide = (magnitude << shift) + (rebias << shift);
        if constexpr (bits == 16 && exponent_bits < 8)
            wide = magnitude >= (((1u << exponent_bits) - 1) << mantissa_bits)
                       ? (magnitude << shift) | infinity_bits
                       : wide;
        if constexpr (exponent_bits < 8) {
            const Floats subnormal =
                __builtin_convertvector((Ints)magnitude, Floats) * power_of_two(subnormal_exponent);
            wide = magnitude < (1u << mantissa_bits) ? (Words)subnormal : wide;
        }
        return (Floats)(wide | signs);
    }
    // Of what has been scaled, so it fits.
    static Coded encode(Floats scaled) {
        const Words wide = (Words)scaled & ~sign_bit;
        const Words code = magnitude(wide) | ((Words)scaled & sign_bit) >> (32 - bits);
        return {code, decode(code)};
    }
};

// A half-wide float without a scale: infinities and NaN are codes of their own, and finite values are clipped.
template <unsigned exponent_bits, unsigned mantissa_bits>
struct HalfFloat : SmallFloat<exponent_bits, mantissa_bits> {
    using Small = SmallFloat<exponent_bits, mantissa_bits>;
    static constexpr std::uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;

    static Coded encode(Floats value) {
        const Words wide = (Words)value & ~sign_bit;
        Words code = Small::magnitude(wide);
        code = code < infinity ? code : Words{} + (infinity - 1);
        code = wide < infinity_bits ? code : Words{} + infinity;
        code |= ((Words)value & sign_bit) >> (32 - Small::bits);
        code = wide > infinity_bits ? Words{} + (infinity | 1u << (mantissa_bits - 1)) : code;
        return {code, Small::decode(code)};
    }
};

template <Codec codec>
struct CodeOf;
template <>
struct CodeOf<Codec::bf16> : HalfFloat<8, 7> {};
template <>
struct CodeOf<Codec::fp16> : HalfFloat<5, 10> {};
template <>
struct CodeOf<Codec::int8> : IntegerCode<8> {};
template <>
struct CodeOf<Codec::int4> : IntegerCode<4> {};
template <>
struct CodeOf<Codec::int2> : IntegerCode<2> {};
template <>
struct CodeOf<Codec::fp8_e4m3> : SmallFloat<4, 3> {};
template <>
struct CodeOf<Codec::fp8_e5m2> : SmallFloat<5, 2> {};

}  // namespace
}  // namespace dlcp

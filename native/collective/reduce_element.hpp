// What the operations do to one element, for each type: the rules of reduce.hpp in code, free of branches so that a
// loop over them becomes vector code. Included by one file per variant only (see kernels.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collective/element.hpp"

namespace dlcp {
namespace {

template <class Float>
struct FloatBits;
template <>
struct FloatBits<float> {
    using Type = std::uint32_t;
    static constexpr Type nan = 0x7fc00000;
};
template <>
struct FloatBits<double> {
    using Type = std::uint64_t;
    static constexpr Type nan = 0x7ff8000000000000;
};
template <class Float>
using BitsOf = typename FloatBits<Float>::Type;

template <class Float>
inline BitsOf<Float> bits_of(Float value) {
    return __builtin_bit_cast(BitsOf<Float>, value);
}
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// NaN is replaced as bits: a compiler may exchange one NaN for another.
template <class Float>
inline BitsOf<Float> canonical(Float value) {
    return value != value ? FloatBits<Float>::nan : bits_of(value);
}

// Written as masks, because compilers turn ?: between longer expressions into branches, which prevents vector code.
inline std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) {
    const std::uint32_t mask = -static_cast<std::uint32_t>(condition);
    return (yes & mask) | (no & ~mask);
}

template <ReduceOp op, class Float>
inline BitsOf<Float> combine_floats(Float a, Float b) {
    if constexpr (op == ReduceOp::sum) {
        return canonical(a + b);
    } else if constexpr (op == ReduceOp::product) {
        return canonical(a * b);
    } else {
        // Both orders agree unless the operands are zeros of different signs (or unordered), where each answers its
        // second operand. The sign bits joined are the sign of the lesser, or common to both the greater's.
        static_assert(op == ReduceOp::min || op == ReduceOp::max);
        constexpr bool min = op == ReduceOp::min;
        const BitsOf<Float> one = bits_of(min ? (a < b ? a : b) : (a > b ? a : b));
        const BitsOf<Float> other = bits_of(min ? (b < a ? b : a) : (b > a ? b : a));
        return __builtin_isunordered(a, b) ? FloatBits<Float>::nan : min ? one | other : one & other;
    }
}

template <class Float>
struct PlainFloat {
    using Stored = BitsOf<Float>;
    using Wide = Float;  // what it is computed in
    static Wide widen(Stored stored) { return __builtin_bit_cast(Float, stored); }
    // Of the bits of a result, whose NaN is canonical.
    static Stored narrow(BitsOf<Wide> bits) { return bits; }
};

struct Bf16 {
    using Stored = std::uint16_t;
    using Wide = float;
    static Wide widen(Stored stored) { return float_of(std::uint32_t{stored} << 16); }
    static Stored narrow(std::uint32_t bits) { return static_cast<Stored>(rounded(bits) >> 16); }
    // The result is the upper half.
    static std::uint32_t rounded(std::uint32_t bits) { return bits + 0x7fff + ((bits >> 16) & 1); }
};

struct F16 {
    using Stored = std::uint16_t;
    using Wide = float;

    static Wide widen(Stored stored) {
        const std::uint32_t magnitude = (std::uint32_t{stored} & 0x7fff) << 13;
        const std::uint32_t normal = magnitude + (rebias << exponent_shift);
        // A denormal has no leading one: it is given one with the least exponent, which is taken off as a number.
        const std::uint32_t denormal = bits_of(float_of(magnitude + least) - float_of(least));
        const std::uint32_t special = magnitude | 0x7f800000;
        // Compared as signed numbers, which they are not above: vectors of baseline x86-64 have no other comparison.
        const auto order = static_cast<std::int32_t>(magnitude);
        const std::uint32_t finite = select(order < (1 << exponent_shift), denormal, normal);
        const std::uint32_t bits = select(order >= (31 << exponent_shift), special, finite);
        return float_of(bits | (std::uint32_t{stored} & 0x8000) << 16);
    }

    static Stored narrow(std::uint32_t bits) {
        const std::uint32_t magnitude = bits & 0x7fffffff;
        const std::uint32_t to_nearest = 0xfff + ((magnitude >> 13) & 1);
        const std::uint32_t normal = (magnitude - (rebias << exponent_shift) + to_nearest) >> 13;
        // The unit in the last place of 0.5 is 2^-24, the least f16: the addition rounds.
        const std::uint32_t denormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
        const auto order = static_cast<std::int32_t>(magnitude);
        const std::uint32_t special = select(order > 0x7f800000, 0x7e00, 0x7c00);
        const std::uint32_t finite = select(order < static_cast<std::int32_t>(least), denormal, normal);
        const std::uint32_t half = select(order >= static_cast<std::int32_t>(beyond), special, finite);
        return static_cast<Stored>(half | (bits & 0x80000000) >> 16);
    }

private:
    static constexpr std::uint32_t exponent_shift = 23;                     // of f32
    static constexpr std::uint32_t rebias = 127 - 15;                       // between the exponents of f16 and f32
    static constexpr std::uint32_t least = (rebias + 1) << exponent_shift;  // 2^-14: the least that is normal
    static constexpr std::uint32_t beyond = (rebias + 31) << exponent_shift;  // 2^16: above all, also rounded
};

template <class Int, class Unsigned>
struct Integer {
    using Stored = Int;

    template <ReduceOp op>
    static Int combine(Int a, Int b) {
        // Unsigned, so that it wraps, and not int, in which the product of two 16-bit numbers can overflow.
        using Wrapping = decltype(Unsigned{} + 0u);
        const auto x = static_cast<Wrapping>(static_cast<Unsigned>(a));
        const auto y = static_cast<Wrapping>(static_cast<Unsigned>(b));
        switch (op) {
            case ReduceOp::sum: return static_cast<Int>(x + y);
            case ReduceOp::product: return static_cast<Int>(x * y);
            case ReduceOp::min: return a < b ? a : b;
            case ReduceOp::max: return a > b ? a : b;
            case ReduceOp::band: return static_cast<Int>(x & y);
            case ReduceOp::bor: return static_cast<Int>(x | y);
            case ReduceOp::bxor: return static_cast<Int>(x ^ y);
        }
    }

    // The quotient in floating point, truncated, is exact if it has more bits than Int: what is not a whole number
    // differs from one by at least 1 / divisor, so relatively by 1 / a or more. (A divisor that f32 rounds is above all
    // numbers of 16 bits.) Processors divide floating point faster than integers, and by the vector.
    static Int divide(Int a, std::uint32_t divisor) {
        if constexpr (sizeof(Int) < 8) {
            using Wide = std::conditional_t<(sizeof(Int) < 4), float, double>;
            return static_cast<Int>(static_cast<std::int32_t>(static_cast<Wide>(a) / static_cast<Wide>(divisor)));
        } else {
            return a / static_cast<Int>(divisor);
        }
    }

    static constexpr Int largest = static_cast<Int>(static_cast<Unsigned>(~Unsigned{0}) >> (Int(-1) < Int(0)));
    static constexpr Int least = static_cast<Int>(Int(-1) < Int(0) ? -largest - 1 : 0);

    static Int multiply(Int a, double factor) {
        const double product = static_cast<double>(a) * factor;
        if constexpr (sizeof(Int) < 8) {
            const double above = product > least ? product : least;  // NaN becomes `least`; corrected below
            const double inside = above < largest ? above : largest;
            return static_cast<Int>(product == product ? static_cast<std::int32_t>(inside) : 0);
        } else {
            constexpr double beyond = 9223372036854775808.0;  // 2^63: the least f64 above `largest`
            if (product != product) return 0;
            if (product >= beyond) return largest;
            if (product < -beyond) return least;
            return static_cast<Int>(product);
        }
    }
};

struct Boolean {
    using Stored = std::uint8_t;

    template <ReduceOp op>
    static Stored combine(Stored a, Stored b) {
        switch (op) {
            case ReduceOp::sum:
            case ReduceOp::max:
            case ReduceOp::bor: return static_cast<Stored>((a | b) != 0);
            case ReduceOp::product:
            case ReduceOp::min:
            case ReduceOp::band: return static_cast<Stored>((a != 0) & (b != 0));
            case ReduceOp::bxor: return static_cast<Stored>((a != 0) ^ (b != 0));
        }
    }
};

template <DataType>
struct ElementOf;
template <>
struct ElementOf<DataType::f32> : PlainFloat<float> {};
template <>
struct ElementOf<DataType::f64> : PlainFloat<double> {};
template <>
struct ElementOf<DataType::f16> : F16 {};
template <>
struct ElementOf<DataType::bf16> : Bf16 {};
template <>
struct ElementOf<DataType::i8> : Integer<std::int8_t, std::uint8_t> {};
template <>
struct ElementOf<DataType::i16> : Integer<std::int16_t, std::uint16_t> {};
template <>
struct ElementOf<DataType::i32> : Integer<std::int32_t, std::uint32_t> {};
template <>
struct ElementOf<DataType::i64> : Integer<std::int64_t, std::uint64_t> {};
template <>
struct ElementOf<DataType::u8> : Integer<std::uint8_t, std::uint8_t> {};
template <>
struct ElementOf<DataType::boolean> : Boolean {};

}  // namespace
}  // namespace dlcp

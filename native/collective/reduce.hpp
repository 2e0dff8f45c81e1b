// Reduction kernels: element by element, on memory of any alignment, chosen once for the processor at hand.
//
// Invariant: the result of an element depends on its two operands alone, not on its place, the count, the processor
// or the rounding and denormal modes of the calling thread, so that every rank and every cut into blocks gives the
// same bits. What that takes:
//
//   floating point  each operation rounds once to nearest, ties to even; denormals count, also in a thread for
//                   which torch.set_flush_denormal is on. f16 and bf16 are widened to f32, combined, and rounded.
//   NaN             a result that is NaN is the positive quiet NaN without payload. Which payload an addition of two
//                   NaNs keeps depends on the order of its operands, and compilers exchange them.
//   min, max        a NaN in either operand gives NaN, as torch.minimum does; -0 is less than +0 (minimum and
//                   maximum of IEEE 754-2019, 9.6).
//   integers        wrap.
//   boolean         0 is false, anything else is true, a result is 0 or 1; sum, max and bor are or, product, min and
//                   band are and, bxor is exclusive or.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/element.hpp"

namespace dlcp {

// out[i] = a[i] op b[i] for `count` elements. `out` may be `a` or `b`; otherwise they do not overlap.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::size_t count);
// nullptr: not defined for this type (bitwise operations on floating point).
ReduceFunction find_reduce(DataType type, ReduceOp op);

// data[i] /= divisor, which is at least 1: f64 in f64, the other floating types in f32 and rounded, where the divisor
// is rounded too if it is above 2^24; integers toward zero; boolean stays as it is.
using AverageFunction = void (*)(void* data, std::size_t count, std::uint32_t divisor);
AverageFunction find_average(DataType type);

// out[i] = in[i] * factor: f64 in f64; the other floating types in f32, to which the factor is rounded first; integers
// in f64, truncated, the nearest that fits if it does not fit, and 0 for NaN; boolean stays as it is. `out` may be `in`.
using MultiplyFunction = void (*)(void* out, const void* in, std::size_t count, double factor);
MultiplyFunction find_multiply(DataType type);

// The same loops compiled for different processors. All give the same bits; the functions above take the last of
// available_variants(), and only tests and benchmarks choose.
enum class Variant : std::uint8_t { portable, avx2, avx512 };
const char* name(Variant variant);
// Those that this build has and this processor can run, in the order of the enumeration.
std::span<const Variant> available_variants();
// `variant` is one of available_variants().
ReduceFunction find_reduce(DataType type, ReduceOp op, Variant variant);
AverageFunction find_average(DataType type, Variant variant);
MultiplyFunction find_multiply(DataType type, Variant variant);

}  // namespace dlcp

// Reduction kernels: element by element, on memory of any alignment, chosen once for the processor at hand.
//
// Invariant: the result of an element depends on its two operands alone, not on its place, the count or the
// processor, so that every rank and every cut into blocks gives the same bits. Floating point: f16 and bf16 are
// widened to f32, combined, and rounded once to nearest, ties to even; a NaN in either operand of min or max gives
// NaN, as torch.minimum does. Integers wrap. bool: sum and max are or, product and min are and.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/element.hpp"

namespace dlcp {

// out[i] = a[i] op b[i] for `count` elements. `out` may be `a` or `b`; otherwise they do not overlap.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::size_t count);
// nullptr: not defined for this type (bitwise operations on floating point).
ReduceFunction find_reduce(DataType type, ReduceOp op);

// data[i] /= divisor: floating point rounds once, integers toward zero; bool stays as it is.
using AverageFunction = void (*)(void* data, std::size_t count, std::uint32_t divisor);
AverageFunction find_average(DataType type);

// out[i] = in[i] * factor, computed in f64 for f64, in f32 for the other floating types, in f64 and truncated for
// integers; bool stays as it is. `out` may be `in`.
using MultiplyFunction = void (*)(void* out, const void* in, std::size_t count, double factor);
MultiplyFunction find_multiply(DataType type);

}  // namespace dlcp

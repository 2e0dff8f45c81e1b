// The loops over elements, and the table of them for the processor that the including file is compiled for. Included
// by one file per variant only (see kernels.hpp).
//
// Elements are read and written with memcpy, so that any alignment will do; compilers make vector code of that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/reduce_element.hpp"
#include "collective/reduce_half.hpp"
#include "collective/reduce_kernels.hpp"
#include "collective/standard_modes.hpp"

// `out` is an operand or disjoint from it, so iterations are independent. Without this pragma, a compiler compares the
// addresses and takes a scalar loop if `out` is an operand, as it nearly always is here.
#if defined(__clang__)
#define DLCP_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define DLCP_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace dlcp {
namespace {

template <ReduceFunction loop>
void reduce_in_standard_modes(void* out, const void* a, const void* b, std::size_t count) {
    in_standard_modes(loop, out, a, b, count);
}
template <AverageFunction loop>
void average_in_standard_modes(void* data, std::size_t count, std::uint32_t divisor) {
    in_standard_modes(loop, data, count, divisor);
}
template <MultiplyFunction loop>
void multiply_in_standard_modes(void* out, const void* in, std::size_t count, double factor) {
    in_standard_modes(loop, out, in, count, factor);
}

// --- loops ---------------------------------------------------------------------------------------------------

template <class Stored>
inline Stored load(const void* from, std::size_t index) {
    Stored value;
    __builtin_memcpy(&value, static_cast<const char*>(from) + index * sizeof(Stored), sizeof(Stored));
    return value;
}
template <class Stored>
inline void store(void* to, std::size_t index, Stored value) {
    __builtin_memcpy(static_cast<char*>(to) + index * sizeof(Stored), &value, sizeof(Stored));
}

// out[i] = combine(a[i], b[i]), from f32 to canonical bits of f32. Two elements lie in a word of 32 bits, where each is
// widened and rounded in place: no vector is taken apart and put together, as it is for elements one by one.
// (Little-endian or not, both elements are treated alike.)
template <class Combine>
inline void for_bf16(void* out, const void* a, const void* b, std::size_t count, Combine combine) {
    const std::size_t pairs = count / 2;
    DLCP_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < pairs; ++i) {
        const auto x = load<std::uint32_t>(a, i);
        const auto y = load<std::uint32_t>(b, i);
        const std::uint32_t upper = Bf16::rounded(combine(float_of(x & 0xffff0000), float_of(y & 0xffff0000)));
        const std::uint32_t lower = Bf16::rounded(combine(float_of(x << 16), float_of(y << 16)));
        store(out, i, (upper & 0xffff0000) | lower >> 16);
    }
    if (count % 2 != 0) {
        const float x = Bf16::widen(load<std::uint16_t>(a, count - 1));
        const float y = Bf16::widen(load<std::uint16_t>(b, count - 1));
        store(out, count - 1, Bf16::narrow(combine(x, y)));
    }
}

template <DataType type, ReduceOp op>
[[gnu::noinline]] void reduce_loop(void* out, const void* a, const void* b, std::size_t count) {
    using Element = ElementOf<type>;
    using Stored = typename Element::Stored;
    if constexpr (type == DataType::bf16) {
        for_bf16(out, a, b, count, combine_floats<op, float>);
    } else {
        DLCP_INDEPENDENT_ITERATIONS
        for (std::size_t i = 0; i < count; ++i) {
            const Stored x = load<Stored>(a, i);
            const Stored y = load<Stored>(b, i);
            if constexpr (is_floating(type)) {
                store(out, i, Element::narrow(combine_floats<op>(Element::widen(x), Element::widen(y))));
            } else {
                store(out, i, Element::template combine<op>(x, y));
            }
        }
    }
}

template <DataType type>
[[gnu::noinline]] void multiply_loop(void* out, const void* in, std::size_t count, double factor) {
    using Element = ElementOf<type>;
    using Stored = typename Element::Stored;
    if constexpr (type == DataType::boolean) {
        if (out != in) __builtin_memcpy(out, in, count);
    } else if constexpr (is_floating(type)) {
        using Wide = typename Element::Wide;
        const auto wide = static_cast<Wide>(factor);
        if constexpr (type == DataType::bf16)
            return for_bf16(out, in, in, count, [wide](float x, float) { return canonical(x * wide); });
        DLCP_INDEPENDENT_ITERATIONS
        for (std::size_t i = 0; i < count; ++i)
            store(out, i, Element::narrow(canonical(Element::widen(load<Stored>(in, i)) * wide)));
    } else {
        DLCP_INDEPENDENT_ITERATIONS
        for (std::size_t i = 0; i < count; ++i) store(out, i, Element::multiply(load<Stored>(in, i), factor));
    }
}

template <DataType type>
[[gnu::noinline]] void divide_loop(void* data, std::size_t count, std::uint32_t divisor) {
    using Element = ElementOf<type>;
    using Stored = typename Element::Stored;
    if constexpr (is_floating(type)) {
        using Wide = typename Element::Wide;
        const auto wide = static_cast<Wide>(divisor);
        if constexpr (type == DataType::bf16)
            return for_bf16(data, data, data, count, [wide](float x, float) { return canonical(x / wide); });
        DLCP_INDEPENDENT_ITERATIONS
        for (std::size_t i = 0; i < count; ++i)
            store(data, i, Element::narrow(canonical(Element::widen(load<Stored>(data, i)) / wide)));
    } else if constexpr (type != DataType::boolean) {
        DLCP_INDEPENDENT_ITERATIONS
        for (std::size_t i = 0; i < count; ++i) store(data, i, Element::divide(load<Stored>(data, i), divisor));
    }
}

#if defined(DLCP_HAVE_HALF_VECTOR)

// out[i] = combine(a[i], b[i]), vector by vector; what is left over goes through a copy as long as a vector.
template <class Combine>
inline void for_half_vectors(void* out, const void* a, const void* b, std::size_t count, Combine combine) {
    constexpr std::size_t vector_bytes = Lanes::count * 2;
    auto* to = static_cast<char*>(out);
    const auto* from_a = static_cast<const char*>(a);
    const auto* from_b = static_cast<const char*>(b);
    const std::size_t bytes = count * 2;
    std::size_t at = 0;
    for (; at + vector_bytes <= bytes; at += vector_bytes)
        combine(HalfVector::load(from_a + at), HalfVector::load(from_b + at)).store(to + at);
    if (at == bytes) return;
    char rest_a[vector_bytes] = {};
    char rest_b[vector_bytes] = {};
    __builtin_memcpy(rest_a, from_a + at, bytes - at);
    __builtin_memcpy(rest_b, from_b + at, bytes - at);
    combine(HalfVector::load(rest_a), HalfVector::load(rest_b)).store(rest_a);
    __builtin_memcpy(to + at, rest_a, bytes - at);
}

template <ReduceOp op>
[[gnu::noinline]] void reduce_half_loop(void* out, const void* a, const void* b, std::size_t count) {
    for_half_vectors(out, a, b, count, [](HalfVector x, HalfVector y) {
        if constexpr (op == ReduceOp::sum) return x + y;
        if constexpr (op == ReduceOp::product) return x * y;
        if constexpr (op == ReduceOp::min) return min(x, y);
        if constexpr (op == ReduceOp::max) return max(x, y);
    });
}
[[gnu::noinline]] inline void multiply_half_loop(void* out, const void* in, std::size_t count, double factor) {
    const HalfVector all = HalfVector::all(static_cast<float>(factor));
    for_half_vectors(out, in, in, count, [all](HalfVector x, HalfVector) { return x * all; });
}
[[gnu::noinline]] inline void divide_half_loop(void* data, std::size_t count, std::uint32_t divisor) {
    const HalfVector all = HalfVector::all(static_cast<float>(divisor));
    for_half_vectors(data, data, data, count, [all](HalfVector x, HalfVector) { return x / all; });
}

#endif

// A power of two, as world sizes often are, has an exact reciprocal, and both operations round the same exact number.
template <MultiplyFunction multiply, AverageFunction divide>
void average_floats(void* data, std::size_t count, std::uint32_t divisor) {
    if ((divisor & (divisor - 1)) == 0) {
        in_standard_modes(multiply, data, static_cast<const void*>(data), count, 1.0 / divisor);
    } else {
        in_standard_modes(divide, data, count, divisor);
    }
}

// --- the table -----------------------------------------------------------------------------------------------

template <DataType type, ReduceOp op>
constexpr ReduceFunction reduce_function() {
    if constexpr (!is_defined(op, type)) {
        return nullptr;
    } else if constexpr (!is_floating(type)) {
        return reduce_loop<type, op>;
    } else {
#if defined(DLCP_HAVE_HALF_VECTOR)
        if constexpr (type == DataType::f16) return reduce_in_standard_modes<reduce_half_loop<op>>;
#endif
        return reduce_in_standard_modes<reduce_loop<type, op>>;
    }
}

template <DataType type>
constexpr void add_type(ReduceKernels& kernels) {
    constexpr auto row = static_cast<std::size_t>(type);
#define DLCP_ADD(op, ...) \
    kernels.reduce[row][static_cast<std::size_t>(ReduceOp::op)] = reduce_function<type, ReduceOp::op>();
    DLCP_REDUCE_OPS(DLCP_ADD)
#undef DLCP_ADD
    if constexpr (is_floating(type)) {
        kernels.average[row] = average_floats<multiply_loop<type>, divide_loop<type>>;
        kernels.multiply[row] = multiply_in_standard_modes<multiply_loop<type>>;
    } else {
        kernels.average[row] = average_in_standard_modes<divide_loop<type>>;  // small integers divide in f64
        kernels.multiply[row] = multiply_in_standard_modes<multiply_loop<type>>;
    }
#if defined(DLCP_HAVE_HALF_VECTOR)
    if constexpr (type == DataType::f16) {
        kernels.average[row] = average_floats<multiply_half_loop, divide_half_loop>;
        kernels.multiply[row] = multiply_in_standard_modes<multiply_half_loop>;
    }
#endif
}

constexpr ReduceKernels make_reduce_kernels() {
    ReduceKernels kernels;
#define DLCP_ADD(type, ...)                                                                    \
    static_assert(sizeof(ElementOf<DataType::type>::Stored) == element_bytes(DataType::type)); \
    add_type<DataType::type>(kernels);
    DLCP_DATA_TYPES(DLCP_ADD)
#undef DLCP_ADD
    return kernels;
}

}  // namespace
}  // namespace dlcp

#undef DLCP_INDEPENDENT_ITERATIONS

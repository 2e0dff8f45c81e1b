// Operations on vectors of floats that have no operator: a fused multiply-add, rounded once, the square root and the
// maximum. Included by one file per variant only (see reduce_kernels.hpp).
#pragma once

#include "collective/vector_width.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dlcp {
namespace {

#if defined(__x86_64__) && !defined(__AVX512F__) && !defined(__FMA__)

// The product of two floats is exact as a double. The sum is rounded to odd (an inexact one becomes the neighbour whose
// last bit is 1), and rounding that to a float gives what one rounding would have given: a double has more than two bits
// to spare (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008).
inline Vector<float> fused_multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
    using Half [[gnu::vector_size(vector_bytes / 2)]] = float;
    const auto half = [](Vector<float> v, std::size_t which) {
        Half part;
        __builtin_memcpy(&part, reinterpret_cast<const char*>(&v) + which * sizeof part, sizeof part);
        return __builtin_convertvector(part, Vector<double>);
    };
    Vector<float> result;
    for (std::size_t which = 0; which < 2; ++which) {
        const Vector<double> addend = half(c, which);
        const Vector<double> product = half(a, which) * half(b, which);
        const Vector<double> sum = product + addend;
        const Vector<double> added = sum - product;
        const Vector<double> error =
            (product - (sum - added)) + (addend - added);  // exact; NaN where sum is not finite
        auto bits = (Vector<std::int64_t>)sum;
        const auto inexact = (Vector<std::int64_t>)((error < 0) | (error > 0));
        const auto toward_zero = (Vector<std::int64_t>)((error > 0) ^ (sum > 0));
        const Vector<std::int64_t> even = (bits & 1) - 1;
        bits += inexact & even & (1 + 2 * toward_zero);
        const Half rounded = __builtin_convertvector((Vector<double>)bits, Half);
        __builtin_memcpy(reinterpret_cast<char*>(&result) + which * sizeof rounded, &rounded, sizeof rounded);
    }
    return result;
}

#else

// a * b + c.
inline Vector<float> fused_multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
#if defined(__AVX512F__)
    return (Vector<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Vector<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    Vector<float> result;
    for (std::size_t i = 0; i < lanes_of<float>; ++i) result[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return result;
#endif
}

#endif

inline Vector<float> square_root(Vector<float> v) {
#if defined(__AVX512F__)
    return (Vector<float>)_mm512_maskz_sqrt_ps(0xffff, (__m512)v);  // GCC 12 warns of the plain one
#elif defined(__AVX2__)
    return (Vector<float>)_mm256_sqrt_ps((__m256)v);
#elif defined(__x86_64__)
    return (Vector<float>)_mm_sqrt_ps((__m128)v);
#else
    Vector<float> result;
    for (std::size_t i = 0; i < lanes_of<float>; ++i) result[i] = __builtin_sqrtf(v[i]);
    return result;
#endif
}

// NaN where either is NaN.
inline Vector<float> maximum(Vector<float> a, Vector<float> b) {
    const Vector<float> larger = a > b ? a : b;  // b where either is NaN
    return a == a ? larger : a;
}

}  // namespace
}  // namespace dlcp

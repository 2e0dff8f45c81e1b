// Operations on vectors of floats that have no operator: a fused multiply-add, rounded once, the square root and the
// maximum. Included by one file per variant only (see kernels.hpp).
#pragma once

#include "collective/vector_width.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dlcp {
namespace {

#if defined(__x86_64__) && !defined(__AVX512F__) && !defined(__FMA__)

// Of the two lower lanes. The product of two floats is exact as a double. The sum is rounded to odd (an inexact one
// becomes the neighbour whose last bit is 1), and rounding that to a float gives what one rounding would have given: a
// double has more than two bits to spare (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008).
inline __m128 fused_pair(__m128 a, __m128 b, __m128 c) {
    using Doubles = Vector<double>;
    using Bits = Vector<std::int64_t>;
    const auto addend = (Doubles)_mm_cvtps_pd(c);
    const Doubles product = (Doubles)_mm_cvtps_pd(a) * (Doubles)_mm_cvtps_pd(b);
    const Doubles sum = product + addend;
    const Doubles added = sum - product;
    const Doubles error = (product - (sum - added)) + (addend - added);  // exact; NaN where the sum is not finite
    const auto inexact = (Bits)((error < 0) | (error > 0));
    const auto toward_zero = (Bits)((error > 0) ^ (sum > 0));
    auto bits = (Bits)sum;
    bits += inexact & ((bits & 1) - 1) & (1 + 2 * toward_zero);
    return _mm_cvtpd_ps((__m128d)bits);
}

inline __m128 upper_pair(__m128 v) { return _mm_movehl_ps(v, v); }

[[gnu::noinline, gnu::cold]] inline Vector<float> fused_with_care(__m128 a, __m128 b, __m128 c) {
    const __m128 high = fused_pair(upper_pair(a), upper_pair(b), upper_pair(c));
    return (Vector<float>)_mm_movelh_ps(fused_pair(a, b, c), high);
}

// a * b + c. Two roundings, to a double and to a float, differ from one only where the double is the middle of two
// floats; of subnormal floats, which have fewer bits, no middle is looked for.
inline Vector<float> fused_multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
    const auto x = (__m128)a, y = (__m128)b, z = (__m128)c;
    const __m128d low = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(x), _mm_cvtps_pd(y)), _mm_cvtps_pd(z));
    const __m128d high = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(upper_pair(x)), _mm_cvtps_pd(upper_pair(y))),
                                    _mm_cvtps_pd(upper_pair(z)));
    const __m128 result = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
    using Words = Vector<std::int32_t>;
    constexpr std::int32_t rounded_bits = 0x1fffffff;  // of the lower word of a double: what a float does not hold
    constexpr std::int32_t least_normal = 0x00800000;
    const auto lower_words = (Words)_mm_shuffle_ps((__m128)low, (__m128)high, _MM_SHUFFLE(2, 0, 2, 0));
    const auto magnitudes = (Words)result & 0x7fffffff;
    const Words middle = (lower_words & rounded_bits) == (rounded_bits + 1) / 2;
    if (_mm_movemask_ps((__m128)(middle | (magnitudes <= least_normal))) != 0) [[unlikely]]
        return fused_with_care(x, y, z);
    return (Vector<float>)result;
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

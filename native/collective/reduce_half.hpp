// Vectors of f16 where the processor converts between f16 and f32 (F16C, AVX-512): compilers make no vector code of
// these conversions by themselves. Same bits as F16 in reduce_element.hpp. Included by one file per variant only (see
// kernels.hpp); without the instructions there is nothing in it.
#pragma once

#if defined(__AVX512F__) || defined(__F16C__)
#define DLCP_HAVE_HALF_VECTOR

#include <immintrin.h>

#include <cstddef>

namespace dlcp {
namespace {

// What the processor has, as f32 lanes.
#if defined(__AVX512F__)
struct Lanes {
    using Vector = __m512;
    static constexpr std::size_t count = 16;
    // A mask of all lanes costs nothing; GCC 12 warns of the forms without one (bug 105593).
    static constexpr __mmask16 every = 0xffff;
    static Vector load(const void* p) {
        return _mm512_maskz_cvtph_ps(every, _mm256_loadu_si256(static_cast<const __m256i*>(p)));
    }
    static void store(void* p, Vector v) {
        _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_maskz_cvtps_ph(every, v, _MM_FROUND_TO_NEAREST_INT));
    }
    static Vector all(float value) { return _mm512_set1_ps(value); }
    static Vector min(Vector a, Vector b) { return _mm512_maskz_min_ps(every, a, b); }
    static Vector max(Vector a, Vector b) { return _mm512_maskz_max_ps(every, a, b); }
    static Vector bits_or(Vector a, Vector b) { return _mm512_or_ps(a, b); }
    static Vector bits_and(Vector a, Vector b) { return _mm512_and_ps(a, b); }
    // v, or the canonical NaN where `test` is NaN.
    static Vector or_nan(Vector v, Vector test) {
        return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(test, test, _CMP_UNORD_Q), all(__builtin_nanf("")));
    }
};
#else
struct Lanes {
    using Vector = __m256;
    static constexpr std::size_t count = 8;
    static Vector load(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
    static void store(void* p, Vector v) {
        _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    static Vector all(float value) { return _mm256_set1_ps(value); }
    static Vector min(Vector a, Vector b) { return _mm256_min_ps(a, b); }
    static Vector max(Vector a, Vector b) { return _mm256_max_ps(a, b); }
    static Vector bits_or(Vector a, Vector b) { return _mm256_or_ps(a, b); }
    static Vector bits_and(Vector a, Vector b) { return _mm256_and_ps(a, b); }
    // v, or the canonical NaN where `test` is NaN.
    static Vector or_nan(Vector v, Vector test) {
        return _mm256_blendv_ps(v, all(__builtin_nanf("")), _mm256_cmp_ps(test, test, _CMP_UNORD_Q));
    }
};
#endif

struct HalfVector {
    Lanes::Vector value;

    static HalfVector load(const void* p) { return {Lanes::load(p)}; }
    void store(void* p) const { Lanes::store(p, Lanes::or_nan(value, value)); }
    static HalfVector all(float value) { return {Lanes::all(value)}; }

    friend HalfVector operator+(HalfVector a, HalfVector b) { return {a.value + b.value}; }
    friend HalfVector operator*(HalfVector a, HalfVector b) { return {a.value * b.value}; }
    friend HalfVector operator/(HalfVector a, HalfVector b) { return {a.value / b.value}; }
    // Both orders joined, for the zeros, as in combine_floats. Where an operand is NaN, one order answers it and the
    // bits of either make a NaN. It is not looked for in the operands: clang 14 would compare them as f16, which no
    // processor of these can, one by one.
    friend HalfVector min(HalfVector a, HalfVector b) {
        return {Lanes::bits_or(Lanes::min(a.value, b.value), Lanes::min(b.value, a.value))};
    }
    friend HalfVector max(HalfVector a, HalfVector b) {
        const Lanes::Vector one = Lanes::max(a.value, b.value);
        const Lanes::Vector other = Lanes::max(b.value, a.value);
        return {Lanes::or_nan(Lanes::bits_and(one, other), Lanes::bits_or(one, other))};
    }
};

}  // namespace
}  // namespace dlcp
#endif

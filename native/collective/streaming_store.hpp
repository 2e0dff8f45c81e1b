// Stores that go past the caches, for results much larger than those: the processor then does not read what it is about
// to overwrite. Included by one file per variant only (see kernels.hpp).
#pragma once

#include "collective/vector_width.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dlcp {
namespace {

// Whether the address of a float is fit for store_past_caches.
inline bool may_stream(const float* to) {
#if defined(__x86_64__)
    return reinterpret_cast<std::uintptr_t>(to) % vector_bytes == 0;
#else
    static_cast<void>(to);
    return false;
#endif
}

inline void store_past_caches(float* to, Vector<float> v) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, (__m512)v);
#elif defined(__AVX__)
    _mm256_stream_ps(to, (__m256)v);
#elif defined(__x86_64__)
    _mm_stream_ps(to, (__m128)v);
#else
    store_vector(to, v);
#endif
}

// To follow the last of a row of such stores: other threads see them in order then.
inline void end_streaming() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

}  // namespace
}  // namespace dlcp

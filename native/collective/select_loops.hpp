// Comparing keys with a bound and packing those that reach it, for the processor that the including file is
// compiled for. Included by one file per variant only (see kernels.hpp).
//
// Candidates are rare: a round of elements is compared first, and packed only if it has one. Packing itself has
// no branches, as nobody could predict them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/select_kernels.hpp"
#include "collective/vector_width.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dlcp {
namespace {

// Where packed candidates go.
struct Packed {
    std::uint32_t* keys;
    std::uint32_t* indices;
    std::size_t count = 0;
};

// --- a vector of keys, and a mask of them --------------------------------------------------------------------

#if defined(__AVX512F__)

using Keys = __m512i;
using Mask = __mmask16;

inline Keys load_keys(const void* from) { return _mm512_loadu_si512(from); }
inline Keys all(std::uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }
inline Keys magnitudes(Keys v) { return _mm512_and_si512(v, all(magnitude_bits)); }
inline Keys counting_from(std::uint32_t first) {
    return _mm512_add_epi32(all(first), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
// Keys have 31 bits: signed comparison does.
inline Mask above(Keys keys, Keys bound) { return _mm512_cmpgt_epi32_mask(keys, bound); }
inline Mask either(Mask a, Mask b) { return a | b; }
inline bool any(Mask mask) { return mask != 0; }
inline std::size_t number(Mask mask) { return static_cast<std::size_t>(__builtin_popcount(mask)); }

// Packed in a register: storing packed is slow on some processors.
inline void pack(Keys keys, Keys indices, Mask mask, Packed& out) {
    _mm512_storeu_si512(out.keys + out.count, _mm512_maskz_compress_epi32(mask, keys));
    _mm512_storeu_si512(out.indices + out.count, _mm512_maskz_compress_epi32(mask, indices));
    out.count += number(mask);
}

#elif defined(__AVX2__)

using Keys = __m256i;
using Mask = __m256i;

// Byte j of entry m: the number of the j-th bit that is set in m.
struct BitNumbers {
    std::uint64_t of[256] = {};
    constexpr BitNumbers() {
        for (std::uint64_t mask = 0; mask < 256; ++mask) {
            unsigned at = 0;
            for (std::uint64_t bit = 0; bit < 8; ++bit)
                if ((mask >> bit & 1) != 0) of[mask] |= bit << (8 * at++);
        }
    }
};
inline constexpr BitNumbers bit_numbers;

inline Keys load_keys(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline Keys all(std::uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }
inline Keys magnitudes(Keys v) { return _mm256_and_si256(v, all(magnitude_bits)); }
inline Keys counting_from(std::uint32_t first) {
    return _mm256_add_epi32(all(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Mask above(Keys keys, Keys bound) { return _mm256_cmpgt_epi32(keys, bound); }
inline Mask either(Mask a, Mask b) { return _mm256_or_si256(a, b); }
inline bool any(Mask mask) { return _mm256_testz_si256(mask, mask) == 0; }
inline unsigned bits_of(Mask mask) { return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask))); }
inline std::size_t number(Mask mask) { return static_cast<std::size_t>(__builtin_popcount(bits_of(mask))); }

inline void pack(Keys keys, Keys indices, Mask mask, Packed& out) {
    const auto numbers = static_cast<long long>(bit_numbers.of[bits_of(mask)]);
    const Keys order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(numbers));
    void* const packed_keys = out.keys + out.count;
    void* const packed_indices = out.indices + out.count;
    _mm256_storeu_si256(static_cast<__m256i*>(packed_keys), _mm256_permutevar8x32_epi32(keys, order));
    _mm256_storeu_si256(static_cast<__m256i*>(packed_indices), _mm256_permutevar8x32_epi32(indices, order));
    out.count += number(mask);
}

#else

using Keys = Vector<std::int32_t>;
using Mask = Vector<std::int32_t>;  // -1: set

inline Keys load_keys(const void* from) { return load_vector<Keys>(from); }
inline Keys all(std::uint32_t value) { return Keys{} + static_cast<std::int32_t>(value); }
inline Keys magnitudes(Keys v) { return v & static_cast<std::int32_t>(magnitude_bits); }
inline Keys counting_from(std::uint32_t first) { return all(first) + Keys{0, 1, 2, 3}; }
inline Mask above(Keys keys, Keys bound) { return keys > bound; }
inline Mask either(Mask a, Mask b) { return a | b; }
inline bool any(Mask mask) {
    const auto halves = (Vector<std::uint64_t>)mask;
    return (halves[0] | halves[1]) != 0;
}
inline std::size_t number(Mask mask) { return static_cast<std::size_t>(-(mask[0] + mask[1] + mask[2] + mask[3])); }

inline void pack(Keys keys, Keys indices, Mask mask, Packed& out) {
    for (std::size_t lane = 0; lane < lanes_of<std::int32_t>; ++lane) {
        out.keys[out.count] = static_cast<std::uint32_t>(keys[lane]);
        out.indices[out.count] = static_cast<std::uint32_t>(indices[lane]);
        out.count += static_cast<std::size_t>(-mask[lane]);
    }
}

#endif

// --- the loops -----------------------------------------------------------------------------------------------

static_assert(sizeof(Keys) == vector_bytes);
static_assert(lanes <= select_slack);
inline constexpr std::size_t round_vectors = 4;
inline constexpr std::size_t round_elements = round_vectors * lanes;
// The processor's own prefetching stays too close to the loop: with this distance it takes 0.8 times as long.
inline constexpr std::size_t prefetch_bytes = 4096;

inline void pack_one(std::uint32_t key, std::uint32_t index, std::uint32_t low, Packed& out) {
    out.keys[out.count] = key;
    out.indices[out.count] = index;
    out.count += static_cast<std::size_t>(key >= low);
}

inline std::uint32_t key_at(const char* at) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, at, sizeof bits);
    return bits & magnitude_bits;
}

// The round that far ahead.
inline void prefetch(const char* at) {
    for (std::size_t line = 0; line < round_elements * sizeof(float); line += 64)
        __builtin_prefetch(at + line + prefetch_bytes);
}

inline std::size_t collect(const void* data, std::size_t count, std::uint32_t low, std::uint32_t first,
                           std::uint32_t* keys, std::uint32_t* indices) {
    Packed out{keys, indices};
    const auto* at = static_cast<const char*>(data);
    const Keys bound = all(low - 1);
    std::size_t i = 0;
    for (; i + round_elements <= count; i += round_elements, at += round_elements * sizeof(float)) {
        Keys round[round_vectors];
        Mask found[round_vectors];
        prefetch(at);
        for (std::size_t v = 0; v < round_vectors; ++v) {
            round[v] = magnitudes(load_keys(at + v * sizeof(Keys)));
            found[v] = above(round[v], bound);
        }
        if (!any(either(either(found[0], found[1]), either(found[2], found[3])))) continue;
        for (std::size_t v = 0; v < round_vectors; ++v)
            pack(round[v], counting_from(first + static_cast<std::uint32_t>(i + v * lanes)), found[v], out);
    }
    for (; i < count; ++i, at += sizeof(float))
        pack_one(key_at(at), first + static_cast<std::uint32_t>(i), low, out);
    return out.count;
}

inline std::size_t count_keys(const void* data, std::size_t count, std::uint32_t low) {
    const auto* at = static_cast<const char*>(data);
    const Keys bound = all(low - 1);
    std::size_t found = 0;
    std::size_t i = 0;
    for (; i + round_elements <= count; i += round_elements, at += round_elements * sizeof(float)) {
        prefetch(at);
        for (std::size_t v = 0; v < round_vectors; ++v)
            found += number(above(magnitudes(load_keys(at + v * sizeof(Keys))), bound));
    }
    for (; i < count; ++i, at += sizeof(float)) found += static_cast<std::size_t>(key_at(at) >= low);
    return found;
}

inline std::size_t keep(std::uint32_t* keys, std::uint32_t* indices, std::size_t count, std::uint32_t low) {
    Packed out{keys, indices};
    const Keys bound = all(low - 1);
    std::size_t i = 0;
    // A vector is read before it is overwritten: what is packed never gets ahead of what was read.
    for (; i + lanes <= count; i += lanes) {
        const Keys vector = load_keys(keys + i);
        pack(vector, load_keys(indices + i), above(vector, bound), out);
    }
    for (; i < count; ++i) pack_one(keys[i], indices[i], low, out);
    return out.count;
}

}  // namespace
}  // namespace dlcp

// The randomised Hadamard transform in place, by chunk. A lost block then costs every value of its chunk a little,
// instead of a few values everything (Warraich et al., OptiReduce, NSDI 2025).
//
// A piece of n = 2^k values x becomes H D x / sqrt(n): D the signs, H the Walsh-Hadamard matrix in its natural order
// (entry i, j: -1 to the power of the number of ones that i and j share). It is orthonormal: the inverse is
// D H x / sqrt(n). The last chunk, where it is short, is cut into pieces of powers of two, the larger first, down to 1.
//
// Invariant: the bits of a result depend on values, seed and step alone. Butterflies (a + b, a - b) run by distance, 1,
// 2, 4, ...; then each value is multiplied by the f32 nearest to 1 / sqrt(n). The value at index i of the buffer is
// negated if bit i % 64 of splitmix64(key + (i / 64) 0x9e3779b97f4a7c15) is set. key is splitmix64(splitmix64(seed) ^
// step), and splitmix64(s) is the next output of a generator in state s (Steele, Lea and Flood, Fast Splittable
// Pseudorandom Number Generators, OOPSLA 2014). So ranks agree without exchanging anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/reduce.hpp"

namespace dlcp {

struct HadamardSigns {
    std::uint64_t seed = 0;
    std::uint64_t step = 0;
};

inline constexpr unsigned hadamard_chunk_log2_max = 24;

// `chunk_log2` is at most hadamard_chunk_log2_max; `variant` one of available_variants(). Any alignment of float.
void hadamard_forward(float* data, std::size_t count, unsigned chunk_log2, HadamardSigns signs, Variant variant);
void hadamard_inverse(float* data, std::size_t count, unsigned chunk_log2, HadamardSigns signs, Variant variant);

}  // namespace dlcp

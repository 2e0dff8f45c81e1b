// Cuts a buffer into pieces that are transformed independently.
#include "collective/hadamard.hpp"

#include <bit>
#include <cassert>
#include <cmath>

#include "collective/hadamard_signs.hpp"
#include "collective/kernels.hpp"
#include "collective/standard_modes.hpp"

namespace dlcp {
namespace {

void transform(float* data, std::size_t count, unsigned chunk_log2, HadamardSigns signs, bool inverse,
               Variant variant) {
    assert(chunk_log2 <= hadamard_chunk_log2_max);
    const HadamardFunction function = kernels_of(variant).hadamard.transform;
    const std::uint64_t key = splitmix64(splitmix64(signs.seed) ^ signs.step);
    for (std::size_t at = 0; at < count;) {
        const std::size_t left = count - at;
        unsigned log2 = chunk_log2;
        if (left >> chunk_log2 == 0) log2 = static_cast<unsigned>(std::bit_width(left)) - 1;
        const HadamardPiece piece{.data = data + at,
                                  .log2 = log2,
                                  .scale = static_cast<float>(1 / std::sqrt(std::exp2(log2))),
                                  .key = key,
                                  .first = at,
                                  .inverse = inverse};
        in_standard_modes(function, &piece);
        at += std::size_t{1} << log2;
    }
}

}  // namespace

void hadamard_forward(float* data, std::size_t count, unsigned chunk_log2, HadamardSigns signs, Variant variant) {
    transform(data, count, chunk_log2, signs, false, variant);
}

void hadamard_inverse(float* data, std::size_t count, unsigned chunk_log2, HadamardSigns signs, Variant variant) {
    transform(data, count, chunk_log2, signs, true, variant);
}

}  // namespace dlcp

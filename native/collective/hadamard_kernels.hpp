// The transform of one piece of each variant; why variants are in files of their own: kernels.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlcp {

struct HadamardPiece {
    float* data = nullptr;
    unsigned log2 = 0;
    float scale = 1;
    std::uint64_t key = 0;  // of the signs, see hadamard.hpp
    std::size_t first = 0;  // index of data[0] in the buffer: a multiple of 2^log2, so words of signs are whole
    bool inverse = false;   // signs last, not first
};

using HadamardFunction = void (*)(const HadamardPiece* piece);

struct HadamardKernels {
    HadamardFunction transform = nullptr;
};

}  // namespace dlcp

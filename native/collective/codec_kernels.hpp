// The loops over coded groups of each variant as a table; why variants are in files of their own: kernels.hpp.
// What the fields mean: codec.hpp. Called in standard modes.
#pragma once

#include "collective/codec.hpp"

namespace dlcp {

struct EncodeWork {
    const float* values;
    const float* before;  // of these values; nullptr: nothing was kept
    float* after;         // room for whole groups; nullptr: nothing is kept
    float factor;
    std::size_t count;  // of values; the last group may be short
    std::uint8_t* coded;
};

struct DecodeWork {
    const std::uint8_t* coded;
    std::size_t count;  // of values
    float* values;
};

struct SumWork {
    const std::uint8_t* const* operands;
    std::size_t operand_count;
    float divisor;  // 1: none
    const float* before;
    float* after;
    float factor;
    std::size_t groups;
    std::uint8_t* coded;  // nullptr: the sum goes to `values`
    float* values;
};

struct CodecKernels {
    void (*encode[codecs])(const EncodeWork*) = {};
    void (*decode[codecs])(const DecodeWork*) = {};
    void (*decode_add[codecs])(const DecodeWork*) = {};  // `count` is of whole groups
    void (*sum[codecs])(const SumWork*) = {};
};

}  // namespace dlcp

// The loops of a selection that depend on the processor, as a table; why variants are in files of their own:
// kernels.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlcp {

inline constexpr std::uint32_t magnitude_bits = 0x7fffffff;  // of an f32: its key

// Kernels write whole vectors: this many elements after the last one they report may be overwritten.
inline constexpr std::size_t select_slack = 16;

struct SelectKernels {
    // Of `count` f32 at `data`, those whose key is at least `low` (at most 2^31): their keys, and their indices
    // from `first` on. Returns how many. Room is needed for `count` and the slack.
    std::size_t (*collect)(const void* data, std::size_t count, std::uint32_t low, std::uint32_t first,
                           std::uint32_t* keys, std::uint32_t* indices);
    // Of `count` f32 at `data`, how many have a key of at least `low` (at most 2^31).
    std::size_t (*count)(const void* data, std::size_t count, std::uint32_t low);
    // Keeps those candidates whose key is at least `low`, in place and in order. Returns how many.
    std::size_t (*keep)(std::uint32_t* keys, std::uint32_t* indices, std::size_t count, std::uint32_t low);
};

}  // namespace dlcp

// Memory of chunks, and the one rule by which a buffer is partitioned into chunks.
//
// All ranks apply the rule to the same length, number of parts and element type, so they arrive at the same parts
// without exchanging them: it decides what goes on the wire. Python and the simulator ask this function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collective/element.hpp"

namespace dlcp {

// Memory of one chunk.
struct ChunkMemory {
    std::uint8_t* data = nullptr;  // nullptr with bytes > 0: virtual, lengths only
    std::uint64_t bytes = 0;       // less than 4 GiB once a collective runs on it
};

// Parts of a buffer that does not divide evenly start at multiples of this: whole cache lines, and whole elements of
// any type.
inline constexpr std::uint64_t part_alignment_bytes = 64;

// `whole` in `parts` parts that follow each other. They are equal if that cuts no element of `type`; otherwise they start
// at multiples of part_alignment_bytes, and the last ones are shorter, or empty. 0 parts: none.
inline std::vector<ChunkMemory> partition(ChunkMemory whole, std::uint32_t parts, DataType type) {
    std::vector<ChunkMemory> out;
    if (parts == 0) return out;
    out.reserve(parts);
    std::uint64_t part_bytes = (whole.bytes + parts - 1) / parts;
    if (whole.bytes % (parts * element_bytes(type)) != 0)
        part_bytes = (part_bytes + part_alignment_bytes - 1) / part_alignment_bytes * part_alignment_bytes;
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < parts; ++i) {
        const std::uint64_t bytes = std::min(part_bytes, whole.bytes - at);
        out.push_back({whole.data == nullptr ? nullptr : whole.data + at, bytes});
        at += bytes;
    }
    return out;
}

}  // namespace dlcp

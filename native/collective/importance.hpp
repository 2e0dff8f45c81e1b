// The importance of each block of a gradient buffer: one pass that reads every element once, or a fixed part of them.
//
// The score of a block is the mean, over its elements that belong to a parameter, of x² divided by the average x² in
// that parameter. Its code has four steps per factor of two. That is fine enough to order blocks, over 31 octaves on
// either side of the average (code 128), and coarse enough to count a step's codes in a histogram, whose quantiles are
// the thresholds of the next step.
//
// Invariant: the sum of squares of a run (elements of one segment in one block) has a fixed shape, so that codes are
// the same on every processor, at any alignment. There are 32 partial sums. Element i of a run of n goes to partial sum
// i % 32, except the last n % 32 elements, which go to the last n % 32 partial sums. The partial sums are added by
// halves, 0 to 16, 1 to 17, and so on, then 0 to 8. f32, f16 and bf16 are squared and summed in f32, f64 in f64;
// everything above a run is f64.
//
// A sampled pass reads the first 512 of every 2048 bytes of each run, and assumes that the rest is similar. Each piece
// is summed as a run; the run's sum is that of its pieces times its elements over those read. The pass misses
// non-finite and large values elsewhere. It takes about half the time where memory is the limit.
//
// An element that is not finite makes its block critical, and so does a square that overflows the type of the sum (f32:
// values above 1.8e19). Squares below the type's smallest number (f32: values under 1e-23) count as 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/element.hpp"
#include "collective/reduce.hpp"

namespace dlcp {

// Consecutive elements of one parameter. Segments are ascending and disjoint; padding between them is not read.
struct ImportanceSegment {
    std::size_t begin = 0;
    std::size_t count = 0;
    double inverse_mean_square = 0;  // 1 / the average of x² in this parameter; finite, not negative
    bool critical = false;           // every block that has an element of it is critical

    std::size_t end() const { return begin + count; }
};

// Elements that go to one owner, cut into blocks from `begin` on; the last block may be short.
struct ImportancePart {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t block_elements = 1;

    std::size_t blocks() const { return (end - begin + block_elements - 1) / block_elements; }
};

inline constexpr std::size_t importance_sample_bytes = 512;  // in a row, and far apart: processors fetch ahead
inline constexpr std::size_t importance_sample_period_bytes = 2048;  // a block of 1392 bytes has one sample
inline constexpr std::uint8_t importance_critical = 255;
inline constexpr std::size_t importance_codes = 255;  // 0 to 254

// 128 + 4 log2(score), with a straight line for the logarithm in an octave; rounded down, at least 0, at most 254. Of a
// score that is not finite 254.
std::uint8_t importance_code(float score);

struct ImportanceResult {
    std::uint8_t* importance = nullptr;  // per block, part after part: `importance_critical`, or its code
    std::uint64_t* histogram =
        nullptr;                    // [importance_codes], added to: bytes of segments in blocks by code, but for
                                    // blocks that are critical by their segments or not finite
    double* square_sums = nullptr;  // [segments], added to: the squares of what lies in parts
};

// A block with a code of `threshold` or above is critical; importance_codes: none by its code. `type` is floating.
// `data` holds all parts and segments; `variant` is one of available_variants().
void mark_importance(DataType type, const void* data, std::span<const ImportanceSegment> segments,
                     std::span<const ImportancePart> parts, unsigned threshold, bool sampled,
                     const ImportanceResult& result, Variant variant);

}  // namespace dlcp

// Iterates over blocks and segments around the sums of squares, which depend on the processor (importance_kernels.hpp).
#include "collective/importance.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "collective/kernels.hpp"
#include "collective/standard_modes.hpp"

namespace dlcp {
namespace {

struct Walk {
    SquareSumFunction square_sum;
    const char* data;
    std::size_t element;  // bytes
    std::span<const ImportanceSegment> segments;
    unsigned threshold;
    bool sampled;
    std::uint64_t* histogram;
    double* square_sums;

    double squares_of(std::size_t begin, std::size_t end) const {
        if (!sampled) return square_sum(data + begin * element, end - begin);
        const std::size_t period = importance_sample_period_bytes / element;
        const std::size_t length = importance_sample_bytes / element;
        double squares = 0;
        std::size_t read = 0;
        for (std::size_t at = begin; at < end; at += period) {
            const std::size_t count = std::min(length, end - at);
            // Prefetch the next sample, perhaps of the next block: no processor predicts its address.
            const char* next = data + std::min(at + period, end) * element;
            for (std::size_t line = 0; line < importance_sample_bytes; line += 64) __builtin_prefetch(next + line);
            squares += square_sum(data + at * element, count);
            read += count;
        }
        return squares * (static_cast<double>(end - begin) / static_cast<double>(read));
    }

    // The importance of the elements from `begin` to `end`. `segment` is the first that ends after `begin`, and becomes
    // the first that ends after `end`.
    std::uint8_t block(std::size_t begin, std::size_t end, std::size_t& segment) const {
        double ratios = 0;
        std::size_t counted = 0;
        bool critical = false;
        bool finite = true;
        for (; segment != segments.size() && segments[segment].begin < end; ++segment) {
            const ImportanceSegment& within = segments[segment];
            const std::size_t from = std::max(begin, within.begin);
            const std::size_t to = std::min(end, within.end());
            if (from < to) {
                const double squares = squares_of(from, to);
                square_sums[segment] += squares;
                ratios += squares * within.inverse_mean_square;
                counted += to - from;
                critical |= within.critical;
                finite &= std::isfinite(squares);
            }
            if (within.end() > end) break;
        }
        if (critical || !finite) return importance_critical;
        const std::uint8_t code =
            importance_code(counted == 0 ? 0.0f : static_cast<float>(ratios / static_cast<double>(counted)));
        histogram[code] += counted * element;
        return code >= threshold ? importance_critical : code;
    }
};

void mark_parts(const Walk* walk, const ImportancePart* parts, std::size_t count, std::uint8_t* importance) {
    for (const ImportancePart* part = parts; part != parts + count; ++part) {
        const auto first =
            std::upper_bound(walk->segments.begin(), walk->segments.end(), part->begin,
                             [](std::size_t begin, const ImportanceSegment& each) { return begin < each.end(); });
        auto segment = static_cast<std::size_t>(first - walk->segments.begin());
        for (std::size_t begin = part->begin; begin < part->end; begin += part->block_elements)
            *importance++ = walk->block(begin, std::min(begin + part->block_elements, part->end), segment);
    }
}

}  // namespace

std::uint8_t importance_code(float score) {
    constexpr int average = 127 << 2;  // the bits of 1.0f above the two that count of the fraction
    const int quarters = static_cast<int>(std::bit_cast<std::uint32_t>(score) >> 21);
    return static_cast<std::uint8_t>(
        std::clamp(quarters - average + 128, 0, static_cast<int>(importance_codes) - 1));
}

void mark_importance(DataType type, const void* data, std::span<const ImportanceSegment> segments,
                     std::span<const ImportancePart> parts, unsigned threshold, bool sampled,
                     const ImportanceResult& result, Variant variant) {
    const SquareSumFunction square_sum = kernels_of(variant).importance.square_sum[static_cast<std::size_t>(type)];
    assert(square_sum != nullptr);
    const Walk walk{.square_sum = square_sum,
                    .data = static_cast<const char*>(data),
                    .element = element_bytes(type),
                    .segments = segments,
                    .threshold = threshold,
                    .sampled = sampled,
                    .histogram = result.histogram,
                    .square_sums = result.square_sums};
    in_standard_modes(mark_parts, &walk, parts.data(), parts.size(), result.importance);
}

}  // namespace dlcp

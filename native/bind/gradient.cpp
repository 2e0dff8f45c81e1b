// What gradients need on the processor: importance of blocks, and the randomised Hadamard transform.
//
// Addresses and counts are trusted, as in reduce.cpp; what can be seen to be wrong raises ValueError. `variant` is for
// tests and benchmarks. The GIL is released.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bind/bind.hpp"
#include "bind/kernel.hpp"
#include "collective/hadamard.hpp"
#include "collective/importance.hpp"

namespace dlcp::bind {
namespace {

template <class T, std::size_t... columns>
using Array = nb::ndarray<T, nb::shape<-1, columns...>, nb::c_contig, nb::device::cpu>;
using Segments = Array<const std::int64_t, 2>;  // begin, count
using Parts = Array<const std::int64_t, 3>;     // begin, end, elements of a block

bool outside(std::int64_t begin, std::int64_t end, std::size_t count) {
    return begin < 0 || end < begin || static_cast<std::size_t>(end) > count;
}

std::vector<ImportanceSegment> segments_of(const Segments& table, const Array<const double>& inverse,
                                           const Array<const bool>& critical, std::size_t count) {
    std::vector<ImportanceSegment> segments(table.shape(0));
    if (inverse.shape(0) != segments.size() || critical.shape(0) != segments.size())
        raise(std::to_string(inverse.shape(0)) + " inverse mean squares and " + std::to_string(critical.shape(0)) +
              " marks; accepted: " + std::to_string(segments.size()) + ", one per segment");
    std::int64_t at = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const std::int64_t begin = table(i, 0);
        const std::int64_t length = table(i, 1);
        if (length < 0 || begin < at || outside(begin, begin + length, count))
            raise("segment " + std::to_string(i) + " has " + std::to_string(length) + " elements from " +
                  std::to_string(begin) + " on; accepted: in order, apart, within " + std::to_string(count));
        const double factor = inverse(i);
        if (!(factor >= 0 && std::isfinite(factor)))
            raise("inverse mean square of segment " + std::to_string(i) + " is " + std::to_string(factor) +
                  "; accepted: finite, at least 0");
        at = begin + length;
        segments[i] = {.begin = static_cast<std::size_t>(begin),
                       .count = static_cast<std::size_t>(length),
                       .inverse_mean_square = factor,
                       .critical = critical(i)};
    }
    return segments;
}

std::vector<ImportancePart> parts_of(const Parts& table, std::size_t count, std::size_t blocks) {
    std::vector<ImportancePart> parts(table.shape(0));
    std::size_t needed = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (outside(table(i, 0), table(i, 1), count) || table(i, 2) < 1)
            raise("part " + std::to_string(i) + " is " + std::to_string(table(i, 0)) + " to " +
                  std::to_string(table(i, 1)) + " in blocks of " + std::to_string(table(i, 2)) +
                  "; accepted: within " + std::to_string(count) + " elements, blocks of at least 1");
        parts[i] = {.begin = static_cast<std::size_t>(table(i, 0)),
                    .end = static_cast<std::size_t>(table(i, 1)),
                    .block_elements = static_cast<std::size_t>(table(i, 2))};
        needed += parts[i].blocks();
    }
    if (blocks != needed)
        raise("room for " + std::to_string(blocks) + " blocks; accepted: " + std::to_string(needed));
    return parts;
}

void importance(DataType type, std::uintptr_t address, std::size_t count, const Segments& segment_table,
                const Array<const double>& inverse, const Array<const bool>& critical, const Parts& part_table,
                unsigned threshold, Array<std::uint8_t> out, Array<std::uint64_t> histogram,
                Array<double> square_sums, bool sampled, const std::optional<std::string>& variant) {
    if (!is_floating(type)) {
        std::string accepted;
        for (const DataTypeTraits& each : data_type_table)
            if (each.floating) accepted += (accepted.empty() ? "" : ", ") + std::string(each.name);
        raise(std::string("importance of ") + name(type) + "; accepted: " + accepted);
    }
    const std::vector<ImportanceSegment> segments = segments_of(segment_table, inverse, critical, count);
    const std::vector<ImportancePart> parts = parts_of(part_table, count, out.shape(0));
    if (histogram.shape(0) != importance_codes)
        raise("a histogram of " + std::to_string(histogram.shape(0)) +
              "; accepted: " + std::to_string(importance_codes));
    if (square_sums.shape(0) != segments.size())
        raise(std::to_string(square_sums.shape(0)) + " sums; accepted: " + std::to_string(segments.size()) +
              ", one per segment");
    const Variant chosen = find_variant(variant);
    const ImportanceResult result{
        .importance = out.data(), .histogram = histogram.data(), .square_sums = square_sums.data()};
    const nb::gil_scoped_release release;
    mark_importance(type, memory_at<const void>(address), segments, parts, threshold, sampled, result, chosen);
}

void hadamard(std::uintptr_t address, std::size_t count, unsigned chunk_log2, std::uint64_t seed,
              std::uint64_t step, bool inverse, const std::optional<std::string>& variant) {
    if (chunk_log2 > hadamard_chunk_log2_max)
        raise("chunk_log2 is " + std::to_string(chunk_log2) + "; accepted: 0 to " +
              std::to_string(hadamard_chunk_log2_max));
    const Variant chosen = find_variant(variant);
    const nb::gil_scoped_release release;
    (inverse ? hadamard_inverse : hadamard_forward)(memory_at<float>(address), count, chunk_log2, {seed, step},
                                                    chosen);
}

}  // namespace

void bind_gradient(nb::module_& m) {
    m.attr("IMPORTANCE_CODES") = importance_codes;
    m.def("importance", &importance, nb::arg("type"), nb::arg("address"), nb::arg("count"), nb::arg("segments"),
          nb::arg("inverse_mean_squares"), nb::arg("critical"), nb::arg("parts"), nb::arg("threshold"),
          nb::arg("out").noconvert(), nb::arg("histogram").noconvert(), nb::arg("square_sums").noconvert(),
          nb::kw_only(), nb::arg("sampled") = false, nb::arg("variant") = nb::none(),
          "Writes a byte per block, part after part; adds to the histogram and to the segments' sums of squares.");
    m.def("hadamard", &hadamard, nb::arg("address"), nb::arg("count"), nb::arg("chunk_log2"), nb::arg("seed"),
          nb::arg("step"), nb::arg("inverse"), nb::kw_only(), nb::arg("variant") = nb::none(),
          "The randomised Hadamard transform of f32, or its inverse, in place.");
}

}  // namespace dlcp::bind

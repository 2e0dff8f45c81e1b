// The sum of squares of a run, for the processor that the including file is compiled for. Included by one file per
// variant only (see kernels.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "collective/importance_kernels.hpp"
#include "collective/reduce_element.hpp"
#include "collective/reduce_half.hpp"
#include "collective/vector_width.hpp"

namespace dlcp {
namespace {

inline constexpr std::size_t partial_sums = 32;

// --- 32 elements as vectors of what they are summed in --------------------------------------------------------

template <DataType type>
inline Vector<typename ElementOf<type>::Wide> load_wide(const char* from) {
    using Element = ElementOf<type>;
    using Wide = typename Element::Wide;
    if constexpr (type == DataType::bf16) {
        using Half [[gnu::vector_size(vector_bytes / 2)]] = std::uint16_t;
        const auto words = __builtin_convertvector(load_vector<Half>(from), Vector<std::uint32_t>) << 16;
        return (Vector<float>)words;
#if defined(DLCP_HAVE_HALF_VECTOR)
    } else if constexpr (type == DataType::f16) {
        static_assert(Lanes::count == lanes_of<float>);
        return Lanes::load(from);
#endif
    } else if constexpr (type == DataType::f16) {
        float wide[lanes_of<float>];
        for (std::size_t i = 0; i < lanes_of<float>; ++i) {
            std::uint16_t stored;
            __builtin_memcpy(&stored, from + i * sizeof stored, sizeof stored);
            wide[i] = Element::widen(stored);
        }
        return load_vector<Vector<float>>(wide);
    } else {
        return load_vector<Vector<Wide>>(from);
    }
}

// --- the shape -------------------------------------------------------------------------------------------------

// all[n + i]: the mask of partial sum i when only the last n count.
template <class Bits>
struct LastOnes {
    Bits all[2 * partial_sums] = {};
    constexpr LastOnes() {
        for (std::size_t i = partial_sums; i < 2 * partial_sums; ++i) all[i] = ~Bits{0};
    }
};
template <class Bits>
inline constexpr LastOnes<Bits> last_ones;

template <std::size_t distance, class Wide, std::size_t... lane>
inline Vector<Wide> moved_down(Vector<Wide> v, std::index_sequence<lane...>) {
    return __builtin_shufflevector(v, v, ((lane + distance) % sizeof...(lane))...);
}
template <class Wide, std::size_t distance>
inline Wide sum_by_halves(Vector<Wide> v) {
    if constexpr (distance == 0) {
        return v[0];
    } else {
        const auto upper = moved_down<distance, Wide>(v, std::make_index_sequence<lanes_of<Wide>>());
        return sum_by_halves<Wide, distance / 2>(v + upper);
    }
}

template <DataType type>
[[gnu::noinline]] double square_sum(const void* data, std::size_t count) {
    using Wide = typename ElementOf<type>::Wide;
    using Bits = BitsOf<Wide>;
    constexpr std::size_t lanes = lanes_of<Wide>;
    constexpr std::size_t vectors = partial_sums / lanes;
    constexpr std::size_t element = element_bytes(type);
    constexpr std::size_t round_bytes = partial_sums * element;

    Vector<Wide> sums[vectors] = {};
    const auto* at = static_cast<const char*>(data);
    std::size_t left = count;
    for (; left >= partial_sums; left -= partial_sums, at += round_bytes) {
        for (std::size_t v = 0; v < vectors; ++v) {
            const Vector<Wide> x = load_wide<type>(at + v * lanes * element);
            sums[v] += x * x;
        }
    }
    if (left != 0) {
        // The last round ends with the run. What it has before the rest was summed already and is masked, or lies
        // outside the run and is not read.
        char rest[round_bytes];
        at -= (partial_sums - left) * element;
        if (count < partial_sums) {
            __builtin_memset(rest, 0, round_bytes);
            __builtin_memcpy(rest + (partial_sums - left) * element, data, left * element);
            at = rest;
        }
        for (std::size_t v = 0; v < vectors; ++v) {
            const auto mask = load_vector<Vector<Bits>>(last_ones<Bits>.all + left + v * lanes);
            const auto x = (Vector<Wide>)((Vector<Bits>)load_wide<type>(at + v * lanes * element) & mask);
            sums[v] += x * x;
        }
    }
    for (std::size_t half = vectors / 2; half != 0; half /= 2)
        for (std::size_t v = 0; v < half; ++v) sums[v] += sums[v + half];
    return sum_by_halves<Wide, lanes / 2>(sums[0]);
}

constexpr ImportanceKernels make_importance_kernels() {
    ImportanceKernels kernels;
    const auto add = [&]<DataType type>() {
        if constexpr (is_floating(type)) kernels.square_sum[static_cast<std::size_t>(type)] = square_sum<type>;
    };
#define DLCP_ADD(type, ...) add.template operator()<DataType::type>();
    DLCP_DATA_TYPES(DLCP_ADD)
#undef DLCP_ADD
    return kernels;
}

}  // namespace
}  // namespace dlcp

// The transform of one piece, for the processor that the including file is compiled for. Included by one file per
// variant only (see kernels.hpp).
//
// Memory access is the cost, so butterflies run three distances at a time: eight vectors are read, combined in
// registers and written. Distances up to 32 are done on 64 consecutive values, those below 4096 (16 KiB, in the
// first-level cache) on 4096 consecutive values, the rest over the piece. The grouping does not affect the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "collective/hadamard_kernels.hpp"
#include "collective/hadamard_signs.hpp"
#include "collective/vector_width.hpp"

namespace dlcp {
namespace {

inline constexpr std::size_t row = 64;  // values that share a word of signs
inline constexpr std::size_t row_vectors = row / lanes;
inline constexpr std::size_t near = 4096;

// --- signs -----------------------------------------------------------------------------------------------------

template <std::size_t... lane>
inline Words lane_bits(std::index_sequence<lane...>) {
    return Words{(std::uint32_t{1} << lane)...};
}
inline Floats with_signs(Floats v, std::uint64_t word, std::size_t position) {
    const Words bits = lane_bits(std::make_index_sequence<lanes>());
    const auto here = static_cast<std::uint32_t>(word >> position);
    const Words negative = (Words)(((Words{} + here) & bits) != 0) & sign_bit;
    return (Floats)((Words)v ^ negative);
}

// --- butterflies -----------------------------------------------------------------------------------------------

template <std::size_t distance, std::size_t... lane>
inline Floats inside(Floats v, std::index_sequence<lane...>) {
    const Floats partner = __builtin_shufflevector(v, v, (lane ^ distance)...);
    const Words upper{((lane & distance) != 0 ? sign_bit : 0)...};
    return partner + (Floats)((Words)v ^ upper);  // the lower one: b + a; the upper one: a + (-b)
}
template <std::size_t distance>
inline void all_inside(Floats (&v)[row_vectors]) {
    if constexpr (distance < lanes) {
        for (Floats& each : v) each = inside<distance>(each, std::make_index_sequence<lanes>());
        all_inside<2 * distance>(v);
    }
}

// Distances 1, 2, 4, ... below `count`, in vectors.
template <std::size_t count>
inline void between(Floats (&v)[count]) {
    for (std::size_t distance = 1; distance < count; distance *= 2) {
        for (std::size_t i = 0; i < count; ++i) {
            if ((i & distance) != 0) continue;
            const Floats a = v[i];
            const Floats b = v[i + distance];
            v[i] = a + b;
            v[i + distance] = a - b;
        }
    }
}

inline void transform_row(float* data, bool negate, std::uint64_t word) {
    Floats v[row_vectors];
    for (std::size_t i = 0; i < row_vectors; ++i) {
        v[i] = load_vector<Floats>(data + i * lanes);
        if (negate) v[i] = with_signs(v[i], word, i * lanes);
    }
    all_inside<1>(v);
    between(v);
    for (std::size_t i = 0; i < row_vectors; ++i) store_vector(data + i * lanes, v[i]);
}

// The distances `distance`, ..., `distance` * ways / 2 over `count` values.
template <std::size_t ways>
inline void combine(float* data, std::size_t count, std::size_t distance) {
    for (std::size_t base = 0; base < count; base += ways * distance) {
        for (std::size_t at = base; at < base + distance; at += lanes) {
            Floats v[ways];
            for (std::size_t i = 0; i < ways; ++i) v[i] = load_vector<Floats>(data + at + i * distance);
            between(v);
            for (std::size_t i = 0; i < ways; ++i) store_vector(data + at + i * distance, v[i]);
        }
    }
}
// All distances from `distance` up to below `count`.
inline void combine_from(float* data, std::size_t count, std::size_t distance) {
    for (; 8 * distance <= count; distance *= 8) combine<8>(data, count, distance);
    if (4 * distance <= count) {
        combine<4>(data, count, distance);
    } else if (2 * distance <= count) {
        combine<2>(data, count, distance);
    }
}

inline void finish_row(float* data, float scale, bool negate, std::uint64_t word) {
    for (std::size_t i = 0; i < row_vectors; ++i) {
        Floats v = load_vector<Floats>(data + i * lanes) * scale;
        if (negate) v = with_signs(v, word, i * lanes);
        store_vector(data + i * lanes, v);
    }
}

// --- a piece ---------------------------------------------------------------------------------------------------

// Less than a row: one value after the other.
inline void transform_short(const HadamardPiece& piece) {
    const std::size_t count = std::size_t{1} << piece.log2;
    const std::uint64_t word = sign_word(piece.key, piece.first / row);
    float* data = piece.data;
    const auto negate = [&] {
        for (std::size_t i = 0; i < count; ++i)
            if ((word >> ((piece.first + i) % row) & 1) != 0) data[i] = -data[i];
    };
    if (!piece.inverse) negate();
    for (std::size_t distance = 1; distance < count; distance *= 2) {
        for (std::size_t i = 0; i < count; ++i) {
            if ((i & distance) != 0) continue;
            const float a = data[i];
            const float b = data[i + distance];
            data[i] = a + b;
            data[i + distance] = a - b;
        }
    }
    for (std::size_t i = 0; i < count; ++i) data[i] *= piece.scale;
    if (piece.inverse) negate();
}

[[gnu::noinline]] void transform_piece(const HadamardPiece* piece) {
    const std::size_t count = std::size_t{1} << piece->log2;
    if (count < row) return transform_short(*piece);
    float* data = piece->data;
    const std::size_t first_row = piece->first / row;
    const std::size_t section = count < near ? count : near;
    for (std::size_t at = 0; at < count; at += section) {
        for (std::size_t r = at; r < at + section; r += row) {
            const std::uint64_t word = piece->inverse ? 0 : sign_word(piece->key, first_row + r / row);
            transform_row(data + r, !piece->inverse, word);
        }
        combine_from(data + at, section, row);
    }
    combine_from(data, count, section);
    for (std::size_t r = 0; r < count; r += row) {
        const std::uint64_t word = piece->inverse ? sign_word(piece->key, first_row + r / row) : 0;
        finish_row(data + r, piece->scale, piece->inverse, word);
    }
}

}  // namespace
}  // namespace dlcp

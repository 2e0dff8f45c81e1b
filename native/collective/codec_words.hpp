// How the codes of a group lie in its words, as vectors and one by one (codec.hpp). Included by one file per variant only
// (see kernels.hpp).
#pragma once

#include "collective/codec.hpp"
#include "collective/vector_width.hpp"

namespace dlcp {
namespace {

inline constexpr std::size_t group_vectors = group_values / lanes;

// Value i of a group is in vector i / lanes.
struct FloatGroup {
    Floats at[group_vectors];
};
struct WordGroup {
    Words at[group_vectors];
};

template <class V, std::size_t distance, std::size_t... lane>
inline V moved_down(V v, std::index_sequence<lane...>) {
    return __builtin_shufflevector(v, v, ((lane + distance) % sizeof...(lane))...);
}

template <unsigned bits>
struct CodeWords {
    static constexpr std::size_t count = 2 * bits;
    static constexpr std::uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;

    // By how much the codes in a vector's lanes are shifted, when one vector has several positions of each word.
    template <std::size_t vector, std::size_t... lane>
    static constexpr Words shifts(std::index_sequence<lane...>) {
        return Words{static_cast<std::uint32_t>(bits * (vector * (lanes / count) + lane / count))...};
    }
    template <std::size_t distance>
    static Words folded(Words v) {
        if constexpr (distance < count) {
            return v;
        } else {
            return folded<distance / 2>(v | moved_down<Words, distance>(v, std::make_index_sequence<lanes>()));
        }
    }
    template <std::size_t... vector>
    static Words gathered(const WordGroup& codes, std::index_sequence<vector...>) {
        return ((codes.at[vector] << shifts<vector>(std::make_index_sequence<lanes>())) | ...);
    }

    // Codes have no bits above their own.
    static void pack(const WordGroup& codes, std::uint8_t* to) {
        if constexpr (count >= lanes) {
            constexpr std::size_t row = count / lanes;  // vectors that hold one position of every word
            for (std::size_t part = 0; part < row; ++part) {
                Words packed = codes.at[part];
                for (std::size_t n = 1; n < group_vectors / row; ++n)
                    packed |= codes.at[n * row + part] << static_cast<std::uint32_t>(bits * n);
                store_vector(to + part * vector_bytes, packed);
            }
        } else {
            const Words packed = folded<lanes / 2>(gathered(codes, std::make_index_sequence<group_vectors>()));
            __builtin_memcpy(to, &packed, count * sizeof(std::uint32_t));
        }
    }

    template <std::size_t... lane>
    static Words repeated(const std::uint8_t* from, std::index_sequence<lane...>) {
        using Few [[gnu::vector_size(count * sizeof(std::uint32_t))]] = std::uint32_t;
        Few few;
        __builtin_memcpy(&few, from, sizeof few);
        return __builtin_shufflevector(few, few, (lane % count)...);
    }
    template <std::size_t... vector>
    static void spread(Words words, WordGroup& codes, std::index_sequence<vector...>) {
        ((codes.at[vector] = words >> shifts<vector>(std::make_index_sequence<lanes>())), ...);
    }

    // The codes are in the lowest bits; what is above them is of no meaning.
    static void unpack(const std::uint8_t* from, WordGroup& codes) {
        if constexpr (count >= lanes) {
            constexpr std::size_t row = count / lanes;
            for (std::size_t part = 0; part < row; ++part) {
                const Words words = load_vector<Words>(from + part * vector_bytes);
                for (std::size_t n = 0; n < group_vectors / row; ++n)
                    codes.at[n * row + part] = words >> static_cast<std::uint32_t>(bits * n);
            }
        } else {
            spread(repeated(from, std::make_index_sequence<lanes>()), codes,
                   std::make_index_sequence<group_vectors>());
        }
    }

    static void put(std::uint8_t* words, std::size_t value, std::uint32_t code) {
        std::uint32_t word;
        __builtin_memcpy(&word, words + value % count * sizeof word, sizeof word);
        word |= code << (bits * (value / count));
        __builtin_memcpy(words + value % count * sizeof word, &word, sizeof word);
    }
    static std::uint32_t get(const std::uint8_t* words, std::size_t value) {
        std::uint32_t word;
        __builtin_memcpy(&word, words + value % count * sizeof word, sizeof word);
        return word >> (bits * (value / count)) & mask;
    }
};

}  // namespace
}  // namespace dlcp

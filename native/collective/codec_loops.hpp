// Groups coded and decoded, for the processor that the including file is compiled for. Included by one file per variant
// only (see kernels.hpp).
#pragma once

#include "collective/codec_codes.hpp"
#include "collective/codec_kernels.hpp"
#include "collective/streaming_store.hpp"

namespace dlcp {
namespace {

inline constexpr std::uint32_t scale_infinity = infinity_bits >> 16;

// --- one group -------------------------------------------------------------------------------------------------

template <std::size_t distance>
inline std::uint32_t largest_lane(Ints v) {
    if constexpr (distance == 0) {
        return static_cast<std::uint32_t>(v[0]);
    } else {
        const Ints other = moved_down<Ints, distance>(v, std::make_index_sequence<lanes>());
        return largest_lane<distance / 2>(v > other ? v : other);
    }
}

// The bits of the largest magnitude; NaN is above all. Magnitudes are ordered as their bits are.
inline std::uint32_t largest_magnitude(const FloatGroup& values) {
    Ints largest = (Ints)((Words)values.at[0] & ~sign_bit);
    for (std::size_t i = 1; i < group_vectors; ++i) {
        const Ints magnitude = (Ints)((Words)values.at[i] & ~sign_bit);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest_lane<lanes / 2>(largest);
}

// The scale of a group with this largest magnitude. The largest scale times the largest code is finite; codes of what it
// cannot hold are the largest even so.
template <Codec codec>
inline std::uint32_t scale_for(std::uint32_t largest) {
    constexpr float code_max = traits(codec).code_max;
    constexpr auto least = __builtin_bit_cast(std::uint32_t, code_max * power_of_two(-126));
    constexpr std::uint32_t scale_max = __builtin_bit_cast(std::uint32_t, __FLT_MAX__ / code_max) >> 16;
    const std::uint32_t scale = (bits_of(float_of(largest) * (1.0f / code_max)) + 0xffff) >> 16;
    return largest < least ? 0 : scale < scale_max ? scale : scale_max;
}

// A group with a value that is not finite; `values` become what is kept of them.
template <Codec codec>
[[gnu::noinline, gnu::cold]] void encode_not_finite(FloatGroup& values, std::uint8_t* to) {
    constexpr CodecTraits kind = traits(codec);
    float each[group_values];
    __builtin_memcpy(each, values.at, sizeof each);
    if constexpr (is_scaled(codec)) {
        const std::uint16_t scale = scale_infinity;
        __builtin_memcpy(to, &scale, sizeof scale);
        __builtin_memset(to + sizeof scale, 0, group_values / 8 * kind.bits);
    }
    for (std::size_t i = 0; i < group_values; ++i) {
        const std::uint32_t magnitude = bits_of(each[i]) & ~sign_bit;
        if constexpr (is_scaled(codec)) {
            if (magnitude < infinity_bits) continue;
            std::uint32_t code = magnitude > infinity_bits     ? kind.not_a_number
                                 : bits_of(each[i]) & sign_bit ? CodeOf<codec>::minus_one
                                                               : CodeOf<codec>::one;
            CodeWords<kind.bits>::put(to + sizeof(std::uint16_t), i, code);
            each[i] = 0;
        }
    }
    __builtin_memcpy(values.at, each, sizeof each);
}

template <Codec codec>
[[gnu::noinline, gnu::cold]] void decode_not_finite(const std::uint8_t* from, FloatGroup& values) {
    constexpr CodecTraits kind = traits(codec);
    float each[group_values];
    for (std::size_t i = 0; i < group_values; ++i) {
        const std::uint32_t code = CodeWords<kind.bits>::get(from + sizeof(std::uint16_t), i);
        const bool negative = (code >> (kind.bits - 1) & 1) != 0;
        each[i] = float_of(code == 0                   ? 0
                           : code == kind.not_a_number ? nan_bits
                           : negative                  ? infinity_bits | sign_bit
                                                       : infinity_bits);
    }
    __builtin_memcpy(values.at, each, sizeof each);
}

// `values` become what the code leaves of them, if anybody `keeps` it.
template <Codec codec, bool keeps = true>
inline void encode_group(FloatGroup& values, std::uint8_t* to) {
    constexpr CodecTraits kind = traits(codec);
    WordGroup codes;
    if constexpr (is_scaled(codec)) {
        const std::uint32_t largest = largest_magnitude(values);
        if (largest >= infinity_bits) [[unlikely]] {
            FloatGroup special = values;  // a copy, so that `values` need no address and stay in registers
            encode_not_finite<codec>(special, to);
            values = special;
            return;
        }
        const std::uint32_t scale_bits = scale_for<codec>(largest);
        const auto stored = static_cast<std::uint16_t>(scale_bits);
        __builtin_memcpy(to, &stored, sizeof stored);
        const float scale = float_of(scale_bits << 16);
        if (scale_bits == 0) {
            __builtin_memset(to + sizeof stored, 0, group_values / 8 * kind.bits);
            return;
        }
        const float inverse = 1.0f / scale;
        for (std::size_t i = 0; i < group_vectors; ++i) {
            const Coded coded = CodeOf<codec>::encode(values.at[i] * inverse);
            codes.at[i] = coded.code;
            if constexpr (keeps) values.at[i] -= coded.value * scale;
        }
    } else {
        for (std::size_t i = 0; i < group_vectors; ++i) {
            const Coded coded = CodeOf<codec>::encode(values.at[i]);
            codes.at[i] = coded.code;
            const Words left = (Words)(values.at[i] - coded.value);
            // Infinity less infinity is NaN.
            values.at[i] = (Floats)((left & ~sign_bit) > infinity_bits ? Words{} : left);
        }
    }
    CodeWords<kind.bits>::pack(codes, to + scale_bytes(codec));
}

template <Codec codec>
inline void decode_group(const std::uint8_t* from, FloatGroup& values) {
    constexpr CodecTraits kind = traits(codec);
    WordGroup codes;
    if constexpr (is_scaled(codec)) {
        std::uint16_t stored;
        __builtin_memcpy(&stored, from, sizeof stored);
        if ((stored & scale_infinity) == scale_infinity) [[unlikely]] {
            FloatGroup special;  // as in encode_group
            decode_not_finite<codec>(from, special);
            values = special;
            return;
        }
        CodeWords<kind.bits>::unpack(from + sizeof stored, codes);
        const float scale = float_of(std::uint32_t{stored} << 16);
        for (std::size_t i = 0; i < group_vectors; ++i) values.at[i] = CodeOf<codec>::decode(codes.at[i]) * scale;
    } else {
        CodeWords<kind.bits>::unpack(from, codes);
        for (std::size_t i = 0; i < group_vectors; ++i) values.at[i] = CodeOf<codec>::decode(codes.at[i]);
    }
}

// Vector by vector, and what is incomplete by way of a copy: a group whose address is taken would not stay in registers.
inline void load_group(const float* from, FloatGroup& values) {
    for (std::size_t i = 0; i < group_vectors; ++i) values.at[i] = load_vector<Floats>(from + i * lanes);
}
template <bool streaming = false>
inline void store_group(float* to, const FloatGroup& values) {
    for (std::size_t i = 0; i < group_vectors; ++i)
        if constexpr (streaming)
            store_past_caches(to + i * lanes, values.at[i]);
        else
            store_vector(to + i * lanes, values.at[i]);
}
inline void load_group(const float* from, FloatGroup& values, std::size_t count) {
    float each[group_values] = {};
    __builtin_memcpy(each, from, count * sizeof *from);
    load_group(each, values);
}
// values += factor · kept
inline void add_kept(FloatGroup& values, const float* kept, float factor) {
    FloatGroup before;
    load_group(kept, before);
    for (std::size_t i = 0; i < group_vectors; ++i) values.at[i] += before.at[i] * factor;
}

// --- many ------------------------------------------------------------------------------------------------------

// How far ahead of the values that are coded memory is fetched; without, a scale's division and the sum of its lanes
// hold up the reads (64 MB, int4, AVX-512: 12.5 ms in place of 7.8, a bare read 8.0).
inline constexpr std::size_t ahead = 1024;
inline void prefetch_group(const float* from) {
    constexpr std::size_t line = 16;
    for (std::size_t i = 0; i < group_values; i += line) __builtin_prefetch(from + i);
}
// As many values are larger than the caches next to a core (decoding 64 MB, AVX-512: 3.6 ms in place of 10.8).
inline constexpr std::size_t streaming_values = 256 * 1024;

template <Codec codec, bool streaming, bool keeps>
inline void encode_all(const EncodeWork todo) {
    constexpr std::size_t bytes = group_bytes(codec);
    std::uint8_t* to = todo.coded;
    for (std::size_t at = 0; at < todo.count; at += group_values, to += bytes) {
        FloatGroup values;
        const std::size_t left = todo.count - at;
        if (left >= group_values) [[likely]]
            load_group(todo.values + at, values);
        else
            load_group(todo.values + at, values, left);
        prefetch_group(todo.values + at + ahead);
        if (keeps && todo.before != nullptr) {
            add_kept(values, todo.before + at, todo.factor);
            prefetch_group(todo.before + at + ahead);
        }
        encode_group<codec, keeps>(values, to);
        if (keeps && todo.after != nullptr) store_group<streaming>(todo.after + at, values);
    }
}

template <Codec codec>
[[gnu::noinline]] void encode_values(const EncodeWork* work) {
    if (work->after == nullptr && work->before == nullptr) {
        encode_all<codec, false, false>(*work);
    } else if (work->after != work->before && work->count >= streaming_values && may_stream(work->after)) {
        encode_all<codec, true, true>(*work);
        end_streaming();
    } else {
        encode_all<codec, false, true>(*work);
    }
}

template <Codec codec, bool streaming>
inline void decode_whole(const std::uint8_t* from, float* to, std::size_t groups) {
    for (std::size_t group = 0; group < groups; ++group, from += group_bytes(codec), to += group_values) {
        FloatGroup values;
        decode_group<codec>(from, values);
        store_group<streaming>(to, values);
    }
}

template <Codec codec>
[[gnu::noinline]] void decode_values(const DecodeWork* work) {
    const DecodeWork todo = *work;
    const std::size_t groups = todo.count / group_values;
    if (todo.count >= streaming_values && may_stream(todo.values)) {
        decode_whole<codec, true>(todo.coded, todo.values, groups);
        end_streaming();
    } else {
        decode_whole<codec, false>(todo.coded, todo.values, groups);
    }
    if (const std::size_t left = todo.count % group_values; left != 0) {
        FloatGroup values;
        decode_group<codec>(todo.coded + groups * group_bytes(codec), values);
        __builtin_memcpy(todo.values + groups * group_values, &values, left * sizeof(float));
    }
}

template <Codec codec>
inline void add_group(const std::uint8_t* from, FloatGroup& sums) {
    FloatGroup values;
    decode_group<codec>(from, values);
    for (std::size_t i = 0; i < group_vectors; ++i) sums.at[i] += values.at[i];
}

template <Codec codec>
[[gnu::noinline]] void decode_add_values(const DecodeWork* work) {
    for (std::size_t at = 0; at < work->count; at += group_values) {
        FloatGroup sums;
        load_group(work->values + at, sums);
        add_group<codec>(work->coded + at / group_values * group_bytes(codec), sums);
        store_group(work->values + at, sums);
    }
}

template <Codec codec>
[[gnu::noinline]] void sum_groups(const SumWork* work) {
    constexpr std::size_t bytes = group_bytes(codec);
    const SumWork todo = *work;
    for (std::size_t group = 0; group < todo.groups; ++group) {
        FloatGroup sums;
        decode_group<codec>(todo.operands[0] + group * bytes, sums);
        for (std::size_t i = 1; i < todo.operand_count; ++i)
            add_group<codec>(todo.operands[i] + group * bytes, sums);
        if (todo.divisor != 1.0f)
            for (std::size_t i = 0; i < group_vectors; ++i) sums.at[i] /= todo.divisor;
        const std::size_t at = group * group_values;
        if (todo.coded == nullptr) {
            store_group(todo.values + at, sums);
            continue;
        }
        if (todo.before != nullptr) add_kept(sums, todo.before + at, todo.factor);
        encode_group<codec>(sums, todo.coded + group * bytes);
        if (todo.after != nullptr) store_group(todo.after + at, sums);
    }
}

constexpr CodecKernels make_codec_kernels() {
    CodecKernels kernels;
    const auto add = [&]<Codec codec>() {
        constexpr auto index = static_cast<std::size_t>(codec);
        kernels.encode[index] = encode_values<codec>;
        kernels.decode[index] = decode_values<codec>;
        kernels.decode_add[index] = decode_add_values<codec>;
        kernels.sum[index] = sum_groups<codec>;
    };
#define DLCP_ADD(codec, ...) add.template operator()<Codec::codec>();
    DLCP_CODECS(DLCP_ADD)
#undef DLCP_ADD
    return kernels;
}

}  // namespace
}  // namespace dlcp

// Few bits for every value: gradients coded in groups of 64 values, each with one scale.
//
// A coded run is a row of groups, and a group decodes by itself: 2 bytes of scale, then the codes of its 64 values. The
// last group of a run is padded with zeros. Blocks of a coded message are cut between groups, so a packet needs no
// index and no neighbour.
//
// The scale is a bfloat16: the largest magnitude of the group over the largest code, rounded up, so that no value is
// clipped. A code is the value over the scale, rounded to nearest, ties to even; the decoded value is code · scale,
// which is exact in f32. So is what a code leaves of a value, the residual: value = decoded + residual holds as an
// equality (but for fp16 beyond its range), and a sender that keeps it loses nothing but time (error feedback, Seide et al., Interspeech 2014;
// Karimireddy et al., arXiv 1901.09847; on both sides of an all-reduce: DoubleSqueeze, arXiv 1905.05957).
//
// A group whose largest magnitude is below qmax · 2^-126 has scale 0 and codes 0. A group with a value that is not
// finite has the scale +infinity, and its codes say what each value is: 0 a finite one, which stays in the residual;
// the codes of 1 and -1 for the infinities; `not_a_number` for NaN. Nobody applies such a step, but all see it.
//
// bf16 and fp16 have no scale: a group is its 64 values, each rounded to nearest, ties to even. What is finite and too
// large becomes the largest finite value; NaN is 0x7fc0 and 0x7e00.
//
// Layout of codes of b bits: they fill 2·b words of 32 bits; word k holds the codes of values k, k + 2·b, k + 4·b and so
// on, the first in its lowest bits. (int4: eight words; value 8 is in bits 4 to 7 of word 0.) So vectors pack and
// unpack by shifts alone. Integers are two's complement; fp8 is OCP's OFP8 (e4m3 without infinities). All is
// little-endian.
//
// Invariant: all variants compute the same bits, and so does dlcp/torch/codec.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/reduce.hpp"

namespace dlcp {

// clang-format off

// name, bits of a code, largest code as a number, the code of NaN in a group that is not finite; the last two are 0
// where a group has no scale
#define DLCP_CODECS(row)             \
    row(bf16,     16,     0,    0)   \
    row(fp16,     16,     0,    0)   \
    row(int8,      8,   127, 0x80)   \
    row(int4,      4,     7, 0x08)   \
    row(int2,      2,     1, 0x02)   \
    row(fp8_e4m3,  8,   448, 0x7f)   \
    row(fp8_e5m2,  8, 57344, 0x7f)

// clang-format on

#define DLCP_NAME(name, ...) name,
enum class Codec : std::uint8_t { DLCP_CODECS(DLCP_NAME) };
#undef DLCP_NAME

struct CodecTraits {
    Codec codec;
    const char* name;
    std::uint32_t bits;
    float code_max;
    std::uint8_t not_a_number;
};

#define DLCP_CODEC(name, bits, code_max, not_a_number) {Codec::name, #name, bits, code_max, not_a_number},
inline constexpr CodecTraits codec_table[] = {DLCP_CODECS(DLCP_CODEC)};
#undef DLCP_CODEC
inline constexpr std::size_t codecs = sizeof codec_table / sizeof codec_table[0];

inline constexpr std::size_t group_values = 64;

constexpr const CodecTraits& traits(Codec codec) { return codec_table[static_cast<std::size_t>(codec)]; }
constexpr const char* name(Codec codec) { return traits(codec).name; }
constexpr bool is_scaled(Codec codec) { return traits(codec).code_max != 0; }
constexpr std::size_t scale_bytes(Codec codec) { return is_scaled(codec) ? 2 : 0; }
constexpr std::size_t group_bytes(Codec codec) {
    return scale_bytes(codec) + group_values / 8 * traits(codec).bits;
}
constexpr std::size_t groups_of(std::size_t values) { return (values + group_values - 1) / group_values; }

// Values that are coded in a row: `count` of them from `begin` of a buffer on, as the groups from `group` on. What is
// kept of them lies at `group` · group_values of a residual.
struct CodedRun {
    std::size_t begin = 0;
    std::size_t count = 0;
    std::size_t group = 0;
};

// What an encoder keeps: v = value + factor · before is coded, and `after` becomes what the code leaves of it. `before`
// and `after` may be the same memory; both nullptr: nothing is kept. After an encode, `after` is 0 where v is not
// finite, and past the last value of a run.
struct Residual {
    const float* before = nullptr;
    float* after = nullptr;
    float factor = 1.0f;
};

// `variant` is one of available_variants(). All are in standard modes, and none allocates.

// Codes the runs of `values`.
void encode(Codec codec, const float* values, std::span<const CodedRun> runs, const Residual& residual,
            std::uint8_t* coded, Variant variant);
// The values of the runs; what lies between them stays as it is.
void decode(Codec codec, const std::uint8_t* coded, std::span<const CodedRun> runs, float* values,
            Variant variant);
// sums += what `coded` says, of whole groups: puts back into a residual what was not delivered.
void decode_add(Codec codec, const std::uint8_t* coded, std::size_t groups, float* sums, Variant variant);

// The owner's part: decodes the operands, adds them in order, divides by `divisor` if it is above 1, and either codes
// the sum into `coded`, or writes it to `values` (`coded` is nullptr then, and the residual is not used).
struct CodedSum {
    std::span<const std::uint8_t* const> operands;
    std::uint32_t divisor = 1;
    Residual residual;
    std::uint8_t* coded = nullptr;
    float* values = nullptr;
};
void sum_coded(Codec codec, const CodedSum& sum, std::size_t groups, Variant variant);

}  // namespace dlcp

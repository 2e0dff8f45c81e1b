// Iterates over runs around the loops, which depend on the processor (codec_kernels.hpp).
#include "collective/codec.hpp"

#include <cassert>

#include "collective/kernels.hpp"
#include "collective/standard_modes.hpp"

namespace dlcp {
void encode(Codec codec, const float* values, std::span<const CodedRun> runs, const Residual& residual,
            std::uint8_t* coded, Variant variant) {
    const auto loop = kernels_of(variant).codec.encode[static_cast<std::size_t>(codec)];
    for (const CodedRun& run : runs) {
        const std::size_t kept = run.group * group_values;
        const EncodeWork work{.values = values + run.begin,
                              .before = residual.before == nullptr ? nullptr : residual.before + kept,
                              .after = residual.after == nullptr ? nullptr : residual.after + kept,
                              .factor = residual.factor,
                              .count = run.count,
                              .coded = coded + run.group * group_bytes(codec)};
        in_standard_modes(loop, &work);
    }
}

void decode(Codec codec, const std::uint8_t* coded, std::span<const CodedRun> runs, float* values,
            Variant variant) {
    const auto loop = kernels_of(variant).codec.decode[static_cast<std::size_t>(codec)];
    for (const CodedRun& run : runs) {
        const DecodeWork work{
            .coded = coded + run.group * group_bytes(codec), .count = run.count, .values = values + run.begin};
        in_standard_modes(loop, &work);
    }
}

void decode_add(Codec codec, const std::uint8_t* coded, std::size_t groups, float* sums, Variant variant) {
    const DecodeWork work{.coded = coded, .count = groups * group_values, .values = sums};
    in_standard_modes(kernels_of(variant).codec.decode_add[static_cast<std::size_t>(codec)], &work);
}

void sum_coded(Codec codec, const CodedSum& sum, std::size_t groups, Variant variant) {
    const SumWork work{.operands = sum.operands.data(),
                       .operand_count = sum.operands.size(),
                       .divisor = sum.divisor > 1 ? static_cast<float>(sum.divisor) : 1.0f,
                       .before = sum.residual.before,
                       .after = sum.residual.after,
                       .factor = sum.residual.factor,
                       .groups = groups,
                       .coded = sum.coded,
                       .values = sum.values};
    in_standard_modes(kernels_of(variant).codec.sum[static_cast<std::size_t>(codec)], &work);
}

}  // namespace dlcp

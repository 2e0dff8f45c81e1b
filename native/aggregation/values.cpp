#include "aggregation/values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "aggregation/packet.hpp"

namespace dlcp::aggregation {
namespace {

constexpr std::uint32_t infinity_bits = 0x7f800000;

std::uint8_t code_of(std::uint32_t largest_bits) {
    if (largest_bits == 0) return code_zero;
    if (largest_bits >= infinity_bits) return code_not_finite;
    int exponent = 0;
    std::frexp(std::bit_cast<float>(largest_bits), &exponent);
    return static_cast<std::uint8_t>(std::max(exponent, 1 - code_bias) + code_bias);
}

}  // namespace

int value_bits(std::uint32_t workers) { return 31 - std::bit_width(workers - 1); }

void exponent_codes(std::span<const float> values, std::uint32_t lanes, std::uint8_t* codes) {
    for (std::size_t from = 0; from < values.size(); from += lanes) {
        const auto block = values.subspan(from, std::min<std::size_t>(lanes, values.size() - from));
        // Magnitudes compare as their bits do; infinity and NaN are above all finite ones.
        std::uint32_t largest = 0;
        for (const float value : block)
            largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
        *codes++ = code_of(largest);
    }
}

void quantise(std::span<const float> values, std::uint8_t code, int bits, std::uint32_t lanes,
              std::uint8_t* packet) {
    if (code == code_zero || code == code_not_finite) {
        std::fill_n(packet, std::size_t{4} * lanes, std::uint8_t{0});
        return;
    }
    const double scale = std::ldexp(1.0, bits + code_bias - code);
    const double most = std::ldexp(1.0, bits) - 1;
    // Adding and taking away 1.5 · 2^52 rounds to the nearest integer, halves to even, below 2^51.
    constexpr double round = 6755399441055744.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const bool finite = (std::bit_cast<std::uint32_t>(values[i]) & infinity_bits) != infinity_bits;
        const double scaled = (finite ? static_cast<double>(values[i]) : 0.0) * scale;
        const double clipped = std::min(std::max(scaled, -most), most);
        const auto integer = static_cast<std::int32_t>((clipped + round) - round);
        write32(packet + 4 * i, static_cast<std::uint32_t>(integer));
    }
    for (std::size_t i = values.size(); i < lanes; ++i) write32(packet + 4 * i, 0);
}

void dequantise(const std::uint8_t* packet, std::uint8_t code, int bits, float divisor, std::span<float> out) {
    if (code == code_zero || code == code_not_finite) {
        std::fill(out.begin(), out.end(), code == code_zero ? 0.0F : std::nanf(""));
        return;
    }
    const double scale = std::ldexp(1.0, code - code_bias - bits);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const auto integer = static_cast<std::int32_t>(read32(packet + 4 * i));
        out[i] = static_cast<float>(static_cast<double>(integer) * scale);
    }
    if (divisor == 1) return;
    for (float& value : out) value /= divisor;
}

}  // namespace dlcp::aggregation

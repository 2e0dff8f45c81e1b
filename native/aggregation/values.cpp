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

// Adding and taking away 1.5 · 2^52 rounds to the nearest integer, halves to even, below 2^51.
constexpr double round_to_integer = 6755399441055744.0;

std::int32_t scaled(float value, double scale, double most) {
    const bool finite = (std::bit_cast<std::uint32_t>(value) & infinity_bits) != infinity_bits;
    const double wanted = (finite ? static_cast<double>(value) : 0.0) * scale;
    const double clipped = std::min(std::max(wanted, -most), most);
    return static_cast<std::int32_t>((clipped + round_to_integer) - round_to_integer);
}

}  // namespace

int value_bits(std::uint32_t workers, std::uint32_t width) {
    return static_cast<int>(width) - 1 - std::bit_width(workers - 1);
}

void exponent_codes(std::span<const float> values, std::uint32_t per_block, std::uint8_t* codes) {
    for (std::size_t from = 0; from < values.size(); from += per_block) {
        const auto block = values.subspan(from, std::min<std::size_t>(per_block, values.size() - from));
        // Magnitudes compare as their bits do; infinity and NaN are above all finite ones.
        std::uint32_t largest = 0;
        for (const float value : block)
            largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
        *codes++ = code_of(largest);
    }
}

void quantise(std::span<const float> values, std::uint8_t code, int bits, std::uint32_t width, std::uint32_t lanes,
              std::uint8_t* packet) {
    if (code == code_zero || code == code_not_finite) {
        std::fill_n(packet, std::size_t{4} * lanes, std::uint8_t{0});
        return;
    }
    const double scale = std::ldexp(1.0, bits + code_bias - code);
    const double most = std::ldexp(1.0, bits) - 1;
    const std::size_t first = std::min<std::size_t>(lanes, values.size());
    for (std::size_t i = 0; i < first; ++i)
        write32(packet + 4 * i, static_cast<std::uint32_t>(scaled(values[i], scale, most)));
    std::fill_n(packet + 4 * first, 4 * (lanes - first), std::uint8_t{0});
    // Further fields: the integers add up to one number, so a negative one below takes from the one above.
    for (std::uint32_t shift = width; shift < 32; shift += width) {
        const std::size_t from = std::size_t{lanes} * (shift / width);
        if (from >= values.size()) return;
        const auto part = values.subspan(from, std::min<std::size_t>(lanes, values.size() - from));
        for (std::size_t i = 0; i < part.size(); ++i) {
            const auto field = static_cast<std::uint32_t>(scaled(part[i], scale, most));
            write32(packet + 4 * i, read32(packet + 4 * i) + (field << shift));
        }
    }
}

void dequantise(const std::uint8_t* packet, std::uint8_t code, int bits, std::uint32_t width, std::uint32_t lanes,
                float divisor, std::span<float> out) {
    if (code == code_zero || code == code_not_finite) {
        std::fill(out.begin(), out.end(), code == code_zero ? 0.0F : std::nanf(""));
        return;
    }
    const double scale = std::ldexp(1.0, code - code_bias - bits);
    for (std::uint32_t shift = 0; shift < 32; shift += width) {
        const std::size_t from = std::size_t{lanes} * (shift / width);
        if (from >= out.size()) break;
        const auto part = out.subspan(from, std::min<std::size_t>(lanes, out.size() - from));
        // A field below that is negative has taken one from this: half a field more undoes it.
        const std::uint32_t below = shift == 0 ? 0 : std::uint32_t{1} << (shift - 1);
        const std::uint32_t up = 32 - width;
        for (std::size_t i = 0; i < part.size(); ++i) {
            const std::uint32_t word = (read32(packet + 4 * i) + below) >> shift << up;
            part[i] = static_cast<float>(static_cast<double>(static_cast<std::int32_t>(word) >> up) * scale);
        }
    }
    if (divisor == 1) return;
    for (float& value : out) value /= divisor;
}

}  // namespace dlcp::aggregation

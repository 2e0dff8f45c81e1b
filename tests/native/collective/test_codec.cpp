// Coded groups: every variant gives the portable one's bits, and what a code leaves is exact.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "collective/codec.hpp"

using namespace dlcp;

namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;
constexpr float infinity = std::numeric_limits<float>::infinity();

bool same_bits(const Floats& a, const Floats& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Magnitudes from subnormal to the largest, so that every group has another scale.
Floats random_values(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Floats values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = std::ldexp(normal(random), static_cast<int>(i / group_values * 7 % 250) - 130);
    return values;
}

struct Encoded {
    Bytes coded;
    Floats after;
};

Encoded encoded(Codec codec, const Floats& values, const Floats& before, Variant variant) {
    const std::size_t groups = groups_of(values.size());
    Encoded out{Bytes(groups * group_bytes(codec)), Floats(groups * group_values)};
    const CodedRun run{.begin = 0, .count = values.size(), .group = 0};
    const Residual residual{.before = before.data(), .after = out.after.data(), .factor = 0.5f};
    encode(codec, values.data(), {&run, 1}, residual, out.coded.data(), variant);
    return out;
}

Floats decoded(Codec codec, const Bytes& coded, std::size_t count, Variant variant) {
    Floats values(count);
    const CodedRun run{.begin = 0, .count = count, .group = 0};
    decode(codec, coded.data(), {&run, 1}, values.data(), variant);
    return values;
}

// With infinities and NaN in some groups.
Floats with_not_finite(Floats values) {
    for (std::size_t i = 70; i < values.size(); i += 900) values[i] = infinity;
    for (std::size_t i = 75; i < values.size(); i += 1300) values[i] = -infinity;
    for (std::size_t i = 77; i < values.size(); i += 1700) values[i] = -std::nanf("");
    return values;
}

}  // namespace

TEST_SUITE("codec") {
    TEST_CASE("variants code, decode and add alike") {
        constexpr std::size_t count = 64 * 150 + 37;
        const Floats values = with_not_finite(random_values(count, 1));
        Floats before = random_values(groups_of(count) * group_values, 2);
        std::fill(before.begin() + count, before.end(), 0.0f);
        for (const CodecTraits& kind : codec_table) {
            CAPTURE(kind.name);
            const Encoded first = encoded(kind.codec, values, before, Variant::portable);
            const Floats expected = decoded(kind.codec, first.coded, count, Variant::portable);
            for (const Variant variant : available_variants()) {
                CAPTURE(name(variant));
                const Encoded other = encoded(kind.codec, values, before, variant);
                CHECK(other.coded == first.coded);
                CHECK(same_bits(other.after, first.after));
                CHECK(same_bits(decoded(kind.codec, first.coded, count, variant), expected));

                const std::size_t groups = groups_of(count);
                const std::uint8_t* operands[] = {first.coded.data(), first.coded.data(), first.coded.data()};
                Floats sums(groups * group_values);
                Floats added = decoded(kind.codec, first.coded, groups * group_values, variant);
                sum_coded(kind.codec, {.operands = operands, .divisor = 1, .values = sums.data()}, groups,
                          variant);
                for (int i = 1; i < 3; ++i)
                    decode_add(kind.codec, first.coded.data(), groups, added.data(), variant);
                CHECK(same_bits(sums, added));
            }
        }
    }

    TEST_CASE("a value is what its code says and what the code leaves, exactly") {
        constexpr std::size_t count = 64 * 200;
        const Floats values = random_values(count, 3);
        const Floats before(count);
        for (const CodecTraits& kind : codec_table) {
            CAPTURE(kind.name);
            const Encoded out = encoded(kind.codec, values, before, available_variants().back());
            const Floats back = decoded(kind.codec, out.coded, count, available_variants().back());
            for (std::size_t i = 0; i < count; ++i) {
                if (kind.codec == Codec::fp16 && std::abs(values[i]) > 65504.0f) continue;
                CAPTURE(i);
                REQUIRE(back[i] + out.after[i] == values[i]);
            }
        }
    }

    TEST_CASE("no error of a scaled integer is above half a step") {
        constexpr std::size_t count = 64 * 100;
        const Floats values = random_values(count, 4);
        const Floats before(count);
        for (const CodecTraits& kind : codec_table) {
            if (!is_scaled(kind.codec) || kind.name[0] != 'i') continue;
            CAPTURE(kind.name);
            const Encoded out = encoded(kind.codec, values, before, Variant::portable);
            for (std::size_t group = 0; group < count / group_values; ++group) {
                std::uint16_t scale = 0;
                std::memcpy(&scale, out.coded.data() + group * group_bytes(kind.codec), sizeof scale);
                if (scale == 0) continue;
                const float step = std::bit_cast<float>(std::uint32_t{scale} << 16);
                for (std::size_t i = 0; i < group_values; ++i)
                    REQUIRE(std::abs(out.after[group * group_values + i]) <= step * 0.5001f);
            }
        }
    }

    TEST_CASE("what is not finite is seen, and its neighbours are kept") {
        Floats values(group_values, 0.25f);
        values[3] = infinity;
        values[40] = -infinity;
        values[63] = std::nanf("7");
        const Floats before(group_values);
        for (const CodecTraits& kind : codec_table) {
            CAPTURE(kind.name);
            const Encoded out = encoded(kind.codec, values, before, available_variants().back());
            const Floats back = decoded(kind.codec, out.coded, group_values, available_variants().back());
            CHECK(back[3] == infinity);
            CHECK(back[40] == -infinity);
            CHECK(std::isnan(back[63]));
            for (const std::size_t gone : {3, 40, 63}) CHECK(out.after[gone] == 0.0f);
            CHECK(back[0] + out.after[0] == 0.25f);
        }
    }
}

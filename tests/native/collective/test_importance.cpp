// Importance of blocks: every variant that this machine can run against a slow oracle, bit by bit, and the rules for
// what is critical and what is counted.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <doctest/doctest.h>

#include "collective/importance.hpp"

using namespace dlcp;

namespace {

constexpr std::array floating{DataType::f32, DataType::f64, DataType::f16, DataType::bf16};

// --- the oracle: one element after the other ---------------------------------------------------------------------

template <class Bits>
Bits bits_at(const std::uint8_t* at) {
    Bits bits;
    std::memcpy(&bits, at, sizeof bits);
    return bits;
}
float f16_value(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
    const float fraction = static_cast<float>(bits & 1023) / 1024;
    if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
    return sign * (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15));
}
double value_at(DataType type, const std::uint8_t* data, std::size_t index) {
    const std::uint8_t* at = data + index * element_bytes(type);
    switch (type) {
        case DataType::f32: return std::bit_cast<float>(bits_at<std::uint32_t>(at));
        case DataType::f64: return std::bit_cast<double>(bits_at<std::uint64_t>(at));
        case DataType::bf16: return std::bit_cast<float>(std::uint32_t{bits_at<std::uint16_t>(at)} << 16);
        default: return f16_value(bits_at<std::uint16_t>(at));
    }
}

template <class Wide>
double slow_square_sum(DataType type, const std::uint8_t* data, std::size_t begin, std::size_t end) {
    std::array<Wide, 32> sums{};
    const std::size_t count = end - begin;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t rest = count % 32;
        const std::size_t sum = i < count - rest ? i % 32 : 32 - (count - i);
        const auto x = static_cast<Wide>(value_at(type, data, begin + i));
        const volatile Wide square = x * x;  // two roundings, also where a processor could do with one
        sums[sum] = sums[sum] + square;
    }
    for (std::size_t half = 16; half != 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    return sums[0];
}

struct Marked {
    std::vector<std::uint8_t> importance;
    std::vector<std::uint64_t> histogram = std::vector<std::uint64_t>(importance_codes);
    std::vector<double> square_sums;
};

struct Case {
    DataType type = DataType::f32;
    std::vector<std::uint8_t> data;
    std::vector<ImportanceSegment> segments;
    std::vector<ImportancePart> parts;
    unsigned threshold = importance_codes;
    bool sampled = false;

    double slow_squares(std::size_t begin, std::size_t end) const {
        const auto sum = [&](std::size_t from, std::size_t to) {
            return type == DataType::f64 ? slow_square_sum<double>(type, data.data(), from, to)
                                         : slow_square_sum<float>(type, data.data(), from, to);
        };
        if (!sampled) return sum(begin, end);
        double squares = 0;
        std::size_t read = 0;
        for (std::size_t at = begin; at < end; at += 2048 / element_bytes(type)) {
            const std::size_t to = std::min(end, at + 512 / element_bytes(type));
            squares += sum(at, to);
            read += to - at;
        }
        return squares * (static_cast<double>(end - begin) / static_cast<double>(read));
    }

    Marked slow() const {
        Marked marked;
        marked.square_sums.resize(segments.size());
        for (const ImportancePart& part : parts) {
            for (std::size_t at = part.begin; at < part.end; at += part.block_elements) {
                const std::size_t end = std::min(at + part.block_elements, part.end);
                double ratios = 0;
                std::size_t counted = 0;
                bool critical = false;
                for (std::size_t s = 0; s < segments.size(); ++s) {
                    const std::size_t from = std::max(at, segments[s].begin);
                    const std::size_t to = std::min(end, segments[s].end());
                    if (from >= to) continue;
                    const double squares = slow_squares(from, to);
                    marked.square_sums[s] += squares;
                    const volatile double ratio = squares * segments[s].inverse_mean_square;
                    ratios += ratio;
                    counted += to - from;
                    critical = critical || segments[s].critical || !std::isfinite(squares);
                }
                const double score = counted == 0 ? 0 : ratios / static_cast<double>(counted);
                const auto code = importance_code(static_cast<float>(score));
                if (!critical) marked.histogram[code] += counted * element_bytes(type);
                marked.importance.push_back(critical || code >= threshold ? importance_critical : code);
            }
        }
        return marked;
    }

    Marked fast(Variant variant, std::size_t offset = 0) const {
        Marked marked;
        std::size_t blocks = 0;
        for (const ImportancePart& part : parts) blocks += part.blocks();
        marked.importance.resize(blocks);
        marked.square_sums.resize(segments.size());
        // On the heap to its last byte, so that a sanitizer sees what is read past it.
        std::vector<std::uint8_t> moved(offset);
        moved.insert(moved.end(), data.begin(), data.end());
        moved.shrink_to_fit();
        mark_importance(type, moved.data() + offset, segments, parts, threshold, sampled,
                        {marked.importance.data(), marked.histogram.data(), marked.square_sums.data()}, variant);
        return marked;
    }
};

// Bits, so that sums which are NaN compare; which NaN it is depends on the order of operands, and nobody reads it.
bool same(const std::vector<double>& a, const std::vector<double>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}
void check_same(const Marked& found, const Marked& expected) {
    CHECK(found.importance == expected.importance);
    CHECK(found.histogram == expected.histogram);
    CHECK(same(found.square_sums, expected.square_sums));
}

std::vector<std::uint8_t> random_elements(DataType type, std::size_t count, std::mt19937_64& random) {
    std::vector<std::uint8_t> data(count * element_bytes(type));
    std::normal_distribution<float> normal;
    const bool any_bits = random() % 4 == 0;
    for (std::size_t i = 0; i < count; ++i) {
        const float value = std::ldexp(normal(random), static_cast<int>(random() % 8));
        std::uint64_t bits = random();
        if (!any_bits) {
            // Of f16 random bits with no more than a middling exponent: no test of its rounding.
            if (type == DataType::f64) bits = std::bit_cast<std::uint64_t>(static_cast<double>(value));
            if (type == DataType::f32) bits = std::bit_cast<std::uint32_t>(value);
            if (type == DataType::bf16) bits = std::bit_cast<std::uint32_t>(value) >> 16;
            if (type == DataType::f16) bits &= 0xbfff;
        }
        std::memcpy(&data[i * element_bytes(type)], &bits, element_bytes(type));
    }
    return data;
}

Case random_case(std::mt19937_64& random) {
    Case one;
    one.type = floating[random() % floating.size()];
    const std::size_t count = random() % 3000;
    one.data = random_elements(one.type, count, random);
    const std::size_t longest = std::array<std::size_t, 3>{3, 70, 2000}[random() % 3];
    for (std::size_t at = 0; at < count;) {
        if (random() % 8 == 0) at += random() % 40;  // padding
        const std::size_t length = std::min<std::size_t>(random() % longest, count - std::min(at, count));
        if (at + length > count || at >= count) break;
        const double inverse =
            random() % 10 == 0 ? 0.0 : std::ldexp(1.0, static_cast<int>(random() % 40) - 20) / 3;
        one.segments.push_back({at, length, inverse, random() % 16 == 0});
        at += length;
    }
    std::size_t at = 0;
    for (std::size_t owner = 0; owner < 1 + random() % 4; ++owner) {
        const std::size_t end = at + random() % (count - at + 1);
        one.parts.push_back({at, end, 16 / element_bytes(one.type) * (1 + random() % 90)});
        at = end;
    }
    one.threshold = static_cast<unsigned>(random() % 256);
    one.sampled = random() % 3 == 0;
    return one;
}

}  // namespace

TEST_CASE("importance: a code has four steps to a factor of two, 128 at the average, and ends at 0 and 254") {
    CHECK(importance_code(1.0f) == 128);
    CHECK(importance_code(1.24f) == 128);
    CHECK(importance_code(1.25f) == 129);
    CHECK(importance_code(2.0f) == 132);
    CHECK(importance_code(0.5f) == 124);
    CHECK(importance_code(0.0f) == 0);
    CHECK(importance_code(std::numeric_limits<float>::denorm_min()) == 0);
    CHECK(importance_code(std::numeric_limits<float>::max()) == 254);
    CHECK(importance_code(std::numeric_limits<float>::infinity()) == 254);
    CHECK(importance_code(std::numeric_limits<float>::quiet_NaN()) == 254);
    for (int code = 1; code < 254; ++code) {
        const auto least = std::bit_cast<float>(static_cast<std::uint32_t>(code - 128 + (127 << 2)) << 21);
        CHECK(importance_code(least) == code);
        CHECK(importance_code(std::nextafter(least, 0.0f)) == code - 1);
    }
}

TEST_CASE("importance: every variant gives what one element after the other gives, bit by bit") {
    std::mt19937_64 random(4);
    for (int repeat = 0; repeat < 600; ++repeat) {
        CAPTURE(repeat);
        const Case one = random_case(random);
        const Marked expected = one.slow();
        for (const Variant variant : available_variants()) {
            CAPTURE(name(variant));
            check_same(one.fast(variant, random() % 64), expected);
        }
    }
}

TEST_CASE("importance: one value that is not finite makes its block critical wherever it is, and no other") {
    std::mt19937_64 random(5);
    for (const DataType type : floating) {
        const std::size_t count = 500;
        Case one{.type = type,
                 .data = random_elements(type, count, random),
                 .segments = {{0, count, 1.0, false}},
                 .parts = {{0, count, 80}}};
        const std::size_t size = element_bytes(type);
        for (std::size_t i = 0; i < count; ++i) {
            std::fill_n(&one.data[i * size], size, std::uint8_t{0});
        }
        const std::uint64_t infinity = type == DataType::f64    ? 0x7ff0000000000000
                                       : type == DataType::f32  ? 0x7f800000
                                       : type == DataType::bf16 ? 0x7f80
                                                                : 0x7c00;
        for (std::size_t at = 0; at < count; ++at) {
            for (const std::uint64_t bits : {infinity, infinity | 1}) {
                std::memcpy(&one.data[at * size], &bits, size);
                for (const Variant variant : available_variants()) {
                    const Marked found = one.fast(variant);
                    for (std::size_t block = 0; block < found.importance.size(); ++block)
                        REQUIRE(found.importance[block] == (block == at / 80 ? importance_critical : 0));
                    REQUIRE_FALSE(std::isfinite(found.square_sums[0]));
                }
            }
            std::fill_n(&one.data[at * size], size, std::uint8_t{0});
        }
    }
}

TEST_CASE("importance: padding is neither read nor counted") {
    Case one{.data = std::vector<std::uint8_t>(200 * 4, 0xff),  // NaN
             .segments = {{40, 10, 1.0, false}},
             .parts = {{0, 200, 20}}};
    std::fill_n(&one.data[40 * 4], 10 * 4, std::uint8_t{0x3f});
    for (const Variant variant : available_variants()) {
        const Marked found = one.fast(variant);
        for (std::size_t block = 0; block < 10; ++block)
            CHECK(found.importance[block] == (block == 2 ? importance_code(0.747f * 0.747f) : 0));
        CHECK(found.histogram[importance_code(0.747f * 0.747f)] == 40);
    }
}

#if defined(__x86_64__)
TEST_CASE("importance: a thread that flushes denormals gets the same") {
    Case one{.data = {}, .segments = {{0, 64, 0x1p126, false}}, .parts = {{0, 64, 64}}};
    for (int i = 0; i < 64; ++i) {
        const float value = 0x1p-66f;  // its square is denormal
        one.data.resize(one.data.size() + 4);
        std::memcpy(&one.data[one.data.size() - 4], &value, 4);
    }
    const Marked expected = one.slow();
    CHECK(expected.square_sums[0] > 0);
    const unsigned modes = _mm_getcsr();
    for (const Variant variant : available_variants()) {
        _mm_setcsr(modes | 0x8040);
        const Marked found = one.fast(variant);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(modes);
        CHECK((after & 0x8040) == 0x8040);
        check_same(found, expected);
    }
}
#endif

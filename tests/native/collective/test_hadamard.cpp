// The randomised Hadamard transform: every variant against the definition, bit by bit against a slow oracle, and back.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "collective/hadamard.hpp"

using namespace dlcp;

namespace {

using Floats = std::vector<float>;

// As hadamard.hpp says it, written once more.
std::uint64_t slow_splitmix64(std::uint64_t state) {
    std::uint64_t z = state + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}
bool negative(HadamardSigns signs, std::size_t index) {
    const std::uint64_t key = slow_splitmix64(slow_splitmix64(signs.seed) ^ signs.step);
    return (slow_splitmix64(key + index / 64 * 0x9e3779b97f4a7c15) >> index % 64 & 1) != 0;
}

// Begin and count of each piece.
std::vector<std::pair<std::size_t, std::size_t>> pieces(std::size_t count, unsigned chunk_log2) {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    std::size_t at = 0;
    for (; count - at >= std::size_t{1} << chunk_log2; at += std::size_t{1} << chunk_log2)
        found.emplace_back(at, std::size_t{1} << chunk_log2);
    for (std::size_t length = std::size_t{1} << chunk_log2; length != 0; length /= 2) {
        if (count - at < length) continue;
        found.emplace_back(at, length);
        at += length;
    }
    return found;
}

Floats slow(Floats x, unsigned chunk_log2, HadamardSigns signs, bool inverse) {
    const auto negate = [&] {
        for (std::size_t i = 0; i < x.size(); ++i)
            if (negative(signs, i)) x[i] = -x[i];
    };
    if (!inverse) negate();
    for (const auto& [begin, count] : pieces(x.size(), chunk_log2)) {
        for (std::size_t distance = 1; distance < count; distance *= 2) {
            for (std::size_t i = begin; i < begin + count; ++i) {
                if (((i - begin) & distance) != 0) continue;
                const float a = x[i];
                const float b = x[i + distance];
                x[i] = a + b;
                x[i + distance] = a - b;
            }
        }
        for (std::size_t i = begin; i < begin + count; ++i)
            x[i] *= static_cast<float>(1 / std::sqrt(static_cast<double>(count)));
    }
    if (inverse) negate();
    return x;
}

Floats random_values(std::size_t count, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    Floats x(count);
    for (float& each : x) each = std::ldexp(normal(random), static_cast<int>(random() % 6));
    return x;
}
double square_sum(const Floats& x) {
    double sum = 0;
    for (const float each : x) sum += static_cast<double>(each) * each;
    return sum;
}
bool same_bits(const Floats& a, const Floats& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("hadamard: splitmix64 gives its published sequence") {
    // State 1234567, the first two.
    CHECK(slow_splitmix64(1234567) == 6457827717110365317u);
    CHECK(slow_splitmix64(1234567 + 0x9e3779b97f4a7c15) == 3203168211198807973u);
}

TEST_CASE("hadamard: a piece is multiplied by the matrix, its columns with signs") {
    const HadamardSigns signs{7, 3};
    for (const unsigned log2 : {0u, 1u, 3u, 6u, 8u}) {
        const std::size_t count = std::size_t{1} << log2;
        for (std::size_t column = 0; column < count; ++column) {
            Floats x(count);
            x[column] = 1;
            hadamard_forward(x.data(), count, log2, signs, available_variants().back());
            for (std::size_t row = 0; row < count; ++row) {
                const bool minus = (std::popcount(row & column) % 2 != 0) != negative(signs, column);
                const double size = 1 / std::sqrt(static_cast<double>(count));
                REQUIRE(x[row] == static_cast<float>(minus ? -size : size));
            }
        }
    }
}

TEST_CASE("hadamard: every variant gives the oracle's bits, both ways, at any count, chunk and place") {
    std::mt19937_64 random(9);
    for (int repeat = 0; repeat < 150; ++repeat) {
        const std::size_t count = random() % (repeat % 5 == 0 ? 40000 : 3000);
        const auto chunk_log2 = static_cast<unsigned>(random() % 17);
        const HadamardSigns signs{random(), random()};
        CAPTURE(count);
        CAPTURE(chunk_log2);
        const Floats x = random_values(count, random);
        for (const Variant variant : available_variants()) {
            CAPTURE(name(variant));
            const std::size_t offset = random() % 16;
            for (const bool inverse : {false, true}) {
                Floats moved(offset, -7.0f);
                moved.insert(moved.end(), x.begin(), x.end());
                (inverse ? hadamard_inverse : hadamard_forward)(moved.data() + offset, count, chunk_log2, signs,
                                                                variant);
                CHECK(std::all_of(moved.begin(), moved.begin() + static_cast<std::ptrdiff_t>(offset),
                                  [](float each) { return each == -7.0f; }));
                const Floats found(moved.begin() + static_cast<std::ptrdiff_t>(offset), moved.end());
                CHECK(same_bits(found, slow(x, chunk_log2, signs, inverse)));
            }
        }
    }
}

TEST_CASE("hadamard: there and back is the same to rounding, and lengths are kept") {
    std::mt19937_64 random(10);
    for (const std::size_t count : {1u, 63u, 64u, 4095u, 32768u, 100001u}) {
        const Floats x = random_values(count, random);
        Floats y = x;
        hadamard_forward(y.data(), count, 15, {1, 2}, available_variants().back());
        CHECK(square_sum(y) == doctest::Approx(square_sum(x)).epsilon(1e-5));
        hadamard_inverse(y.data(), count, 15, {1, 2}, available_variants().back());
        double difference = 0;
        for (std::size_t i = 0; i < count; ++i) difference += std::pow(static_cast<double>(x[i]) - y[i], 2);
        CHECK(difference <= 1e-11 * square_sum(x));
    }
}

TEST_CASE("hadamard: another seed or step has other signs") {
    std::size_t seeds = 0;
    std::size_t steps = 0;
    for (std::size_t i = 0; i < 4096; ++i) {
        seeds += negative({1, 1}, i) != negative({2, 1}, i);
        steps += negative({1, 1}, i) != negative({1, 2}, i);
    }
    CHECK(std::abs(static_cast<double>(seeds) - 2048) < 200);
    CHECK(std::abs(static_cast<double>(steps) - 2048) < 200);
}

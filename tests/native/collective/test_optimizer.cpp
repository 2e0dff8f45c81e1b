// Optimizers stay within their memory, which sanitizers see here and not from Python: every variant on blocks of exactly
// the size of the data, against one element after the other. That results are torch's is in
// tests/torch/test_native_optimizer.py.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "collective/optimizer.hpp"
#include "collective/vector_arithmetic.hpp"

using namespace dlcp;

namespace {

using Array = std::vector<float>;

// Not what an Optimizer does by itself, so that a test sees which one it was.
void floor_root(const void* context, const float* in, float* out, std::size_t count) {
    CHECK(*static_cast<const int*>(context) == 42);
    CHECK(count <= 512);
    for (std::size_t i = 0; i < count; ++i) out[i] = std::floor(std::sqrt(in[i]));
}
const int of_floors = 42;
const SquareRoot floors{.call = floor_root, .context = &of_floors};

Array drawn(std::mt19937& random, std::size_t count) {
    Array values(count);
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 7;
    return values;
}

struct Slow {
    Array weights, mean, square;

    // A step of Nesterov's momentum; `mean` is its buffer.
    void nesterov(const Array& sum, std::uint64_t step, float divisor) {
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const float gradient = std::fma(weights[i], 0.01f, sum[i] / divisor);
            mean[i] = step == 1 ? gradient : std::fma(gradient, 1.0f, mean[i] * 0.9f);
            weights[i] = std::fma(std::fma(mean[i], 0.9f, gradient), -0.1f, weights[i]);
        }
    }
    void adam_w(const Array& sum, std::uint64_t step, float divisor, bool floored) {
        const auto n = static_cast<double>(step);
        const auto correction = static_cast<float>(std::pow(1 - std::pow(0.999, n), 0.5));
        const auto step_size = static_cast<float>(-(0.1 / (1 - std::pow(0.9, n))));
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const float gradient = sum[i] / divisor;
            const float decayed = weights[i] * static_cast<float>(1 - 0.1 * 0.01);
            mean[i] = std::fma(gradient - mean[i], static_cast<float>(1 - 0.9), mean[i]);
            const float part = static_cast<float>(1 - 0.999) * gradient;
            square[i] = std::fma(part, gradient, square[i] * 0.999f);
            const float root = floored ? std::floor(std::sqrt(square[i])) : std::sqrt(square[i]);
            weights[i] = decayed + step_size * mean[i] / (root / correction + 1e-8f);
        }
    }
};

void check(std::size_t count, std::size_t parts, std::uint32_t divisor, std::size_t offset) {
    CAPTURE(count);
    CAPTURE(parts);
    const Sgd nesterov{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
    const Adam adam_w{.learning_rate = 0.1, .weight_decay = 0.01, .decoupled = true};
    for (const Variant variant : available_variants()) {
        for (const int which : {0, 1, 2}) {
            std::mt19937 random(static_cast<unsigned>(count));
            Slow slow{drawn(random, count), Array(count), Array(count)};
            Optimizer optimizer(which == 0 ? OptimizerRule(nesterov) : OptimizerRule(adam_w), count);
            // Bytes, so that every address has the same odd distance from where the allocator put it.
            const auto weights = std::make_unique<char[]>(offset + count * sizeof(float));
            auto* const at = reinterpret_cast<float*>(weights.get() + offset);
            std::memcpy(weights.get() + offset, slow.weights.data(), count * sizeof(float));
            for (std::uint64_t step = 1; step <= 3; ++step) {
                std::vector<std::unique_ptr<float[]>> memory;
                std::vector<const float*> contributions;
                Array sum(count);
                for (std::size_t k = 0; k < parts; ++k) {
                    const Array values = drawn(random, count);
                    memory.push_back(std::make_unique<float[]>(count));
                    std::copy(values.begin(), values.end(), memory.back().get());
                    contributions.push_back(memory.back().get());
                    for (std::size_t i = 0; i < count; ++i) sum[i] = k == 0 ? values[i] : sum[i] + values[i];
                }
                optimizer.step(contributions, divisor, at, at, which == 2 ? floors : SquareRoot{}, variant);
                if (which == 0) {
                    slow.nesterov(sum, step, static_cast<float>(divisor));
                } else {
                    slow.adam_w(sum, step, static_cast<float>(divisor), which == 2);
                }
            }
            CHECK(std::memcmp(weights.get() + offset, slow.weights.data(), count * sizeof(float)) == 0);
            CHECK(std::ranges::equal(optimizer.state(0), slow.mean));
            if (which != 0) CHECK(std::ranges::equal(optimizer.state(1), slow.square));
        }
    }
}

}  // namespace

TEST_CASE("optimizer: every length and number of contributions, within its memory") {
    const float* const nothing = nullptr;
    Optimizer(Sgd{.learning_rate = 0.1}, 0).step({&nothing, 1}, 1, nullptr, nullptr);
    for (std::size_t count = 1; count <= 35; ++count) check(count, 1 + count % 4, 1 + count % 3, count % 2 * 4);
    for (const std::size_t count : {511, 512, 513, 1300}) check(count, 2, 2, 0);
    check(700, 17, 17, 4);
}

TEST_CASE("vector arithmetic: a fused multiply-add is rounded once") {
    std::mt19937_64 random(7);
    const auto equal = [](float one, float other) {
        return std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(other) ||
               (std::isnan(one) && std::isnan(other));
    };
    const auto check_one = [&](float a, float b, float c) {
        const Vector<float> found =
            fused_multiply_add(Vector<float>{} + a, Vector<float>{} + b, Vector<float>{} + c);
        const float expected = std::fma(a, b, c);
        const bool same = equal(found[0], expected) && equal(found[lanes_of<float> - 1], expected);
        if (!same) FAIL_CHECK(a << " * " << b << " + " << c << " is " << found[0] << ", not " << expected);
    };
    const auto any = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random())); };
    for (int i = 0; i < 300'000; ++i) check_one(any(), any(), any());
    for (int i = 0; i < 300'000; ++i) {
        // A product near the middle between two floats, or subnormal, and an addend that decides, far below a double's
        // last bit.
        const auto a = static_cast<float>((random() % (1 << 12)) | 1);
        const float b =
            std::ldexp(static_cast<float>((1 << 12) + random() % (1 << 13)), -static_cast<int>(random() % 160));
        const float c = std::ldexp(random() % 2 == 0 ? 1.0f : -1.0f, -static_cast<int>(random() % 149));
        check_one(a, b, c);
        check_one(1.0f, c, a * b);
        check_one(-a, b, a * b);
    }
}

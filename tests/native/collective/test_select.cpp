// Selection stays within its memory, which sanitizers see here and not from Python: every variant on blocks of
// exactly the size of the data, at any alignment, against a slow oracle. Awkward values are in
// tests/torch/selectors/test_largest.py.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "collective/select.hpp"

using namespace dlcp;

namespace {

using Indices = std::vector<std::int64_t>;

Indices slow_largest(const std::vector<float>& x, std::size_t k) {
    Indices order(x.size());
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; };
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        if (std::isnan(at(a)) || std::isnan(at(b))) return std::isnan(at(a)) && !std::isnan(at(b));
        return std::abs(at(a)) > std::abs(at(b));
    });
    order.resize(k);
    std::sort(order.begin(), order.end());
    return order;
}

void check_all(const std::vector<float>& x, std::size_t k, std::size_t offset) {
    const auto memory = std::make_unique<char[]>(offset + x.size() * sizeof(float));
    std::memcpy(memory.get() + offset, x.data(), x.size() * sizeof(float));
    const Indices expected = slow_largest(x, k);
    for (const Variant variant : available_variants()) {
        for (const SelectMethod method : {SelectMethod::histogram, SelectMethod::sampled}) {
            Indices found(k, -1);
            select_largest(memory.get() + offset, x.size(), k, found.data(), method, variant);
            CAPTURE(name(variant));
            CAPTURE(x.size());
            CAPTURE(k);
            CHECK(found == expected);
        }
    }
}

}  // namespace

TEST_CASE("select: short data of any length and alignment, NaN at its ends") {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (std::size_t count = 1; count <= 140; ++count) {
        std::vector<float> x(count);
        for (float& each : x) each = normal(random);
        x.front() = x.back() = NAN;
        for (const std::size_t k : {std::size_t{1}, count / 2, count - 1, count})
            check_all(x, k, count % sizeof(float));
    }
}

TEST_CASE("select: long data for whose candidates there is no room") {
    for (const bool equal : {false, true}) {
        std::vector<float> x(280'003);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = equal ? 1.0f : static_cast<float>(i);
        for (const std::size_t k : {std::size_t{1}, std::size_t{2800}, x.size() / 2, x.size() - 1})
            check_all(x, k, 1);
    }
}

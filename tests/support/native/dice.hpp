// Choices that tests make from a seed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>

#include "engine/random.hpp"
#include "engine/units.hpp"

namespace dlcp::test {

class Dice {
public:
    explicit Dice(std::uint64_t seed) : random_(seed) {}

    std::uint64_t word() { return random_.next(); }
    // Uniform in [0, bound).
    std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : random_.below(bound); }
    // Uniform in [low, high].
    std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
    Duration up_to(Duration most) {
        return {static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most.value) + 1))};
    }
    // Uniform in [0, 1).
    double unit() { return static_cast<double>(random_.next() >> 11) * 0x1p-53; }
    bool chance(double probability) { return unit() < probability; }
    template <class T>
    T pick(std::initializer_list<T> choices) {
        return *std::next(choices.begin(), static_cast<std::ptrdiff_t>(below(choices.size())));
    }

private:
    Random random_;
};

}  // namespace dlcp::test

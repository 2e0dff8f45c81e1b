// The signs of the randomised Hadamard transform; hadamard.hpp says which. In an unnamed namespace, as all that
// kernels compiled for different processors include (see kernels.hpp).
#pragma once

#include <cstdint>

namespace dlcp {
namespace {

inline constexpr std::uint64_t splitmix_increment = 0x9e3779b97f4a7c15;

inline std::uint64_t splitmix64(std::uint64_t state) {
    std::uint64_t z = state + splitmix_increment;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// Bit i: whether the value at index 64 * `word` + i is negated.
inline std::uint64_t sign_word(std::uint64_t key, std::uint64_t word) {
    return splitmix64(key + word * splitmix_increment);
}

}  // namespace
}  // namespace dlcp

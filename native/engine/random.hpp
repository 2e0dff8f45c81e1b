// The engine's only source of randomness: xoshiro256** (Blackman and Vigna, 2018), seeded by SplitMix64.
// Not for secrets: keys come from the job key; session ids need only be unique.
#pragma once

#include <bit>
#include <cstdint>

namespace dlcp {

class Random {
public:
    explicit Random(std::uint64_t seed) {
        for (auto& word : state_) {
            seed += 0x9e3779b97f4a7c15ULL;
            std::uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
            word = z ^ (z >> 31);
        }
    }

    std::uint64_t next() {
        const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t t = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= t;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    // Uniform in [0, bound), bound > 0 (Lemire's multiply-shift; its bias is below 2^-32 for small bounds).
    std::uint64_t below(std::uint64_t bound) {
        __extension__ using u128 = unsigned __int128;
        return static_cast<std::uint64_t>((u128{next()} * bound) >> 64);
    }

private:
    std::uint64_t state_[4];
};

}  // namespace dlcp

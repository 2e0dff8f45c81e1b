// Random words that a seed replays: SplitMix64 (Steele, Lea, Flood: OOPSLA 2014). Not for secrets.
#pragma once

#include <cstdint>

namespace dlcp::softswitch {

class Random {
public:
    explicit Random(std::uint64_t seed = 0) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
        z = (z ^ z >> 27) * 0x94d049bb133111ebU;
        return z ^ z >> 31;
    }

    // True with this probability; 0 never, 1 always.
    bool chance(double ratio) { return static_cast<double>(next() >> 11) * 0x1p-53 < ratio; }

private:
    std::uint64_t state_;
};

}  // namespace dlcp::softswitch

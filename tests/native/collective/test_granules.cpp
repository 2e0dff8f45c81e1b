// Which bytes of a chunk are there, in granules of 16 bytes.
#include "collective/granules.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace dlcp {
namespace {

Granules of(std::uint64_t bytes) {
    Granules granules;
    granules.reset(bytes);
    return granules;
}

struct Run {
    std::uint32_t first;
    std::uint32_t last;
    bool operator==(const Run&) const = default;
};

std::vector<Run> runs(const Granules& granules, std::uint32_t from, std::uint32_t end, bool wanted) {
    std::vector<Run> out;
    std::uint32_t first = 0, last = 0;
    for (std::uint32_t at = from; at < end && granules.next_run(at, end, wanted, first, last); at = last)
        out.push_back({first, last});
    return out;
}

TEST_CASE("granules: nothing is tracked before reset") {
    CHECK_FALSE(Granules().tracked());
    CHECK(of(1).tracked());
}

TEST_CASE("granules: a short last granule is there as a whole") {
    Granules granules = of(40);
    granules.set(32, 8);
    CHECK(granules.all(32, 8));
    CHECK_FALSE(granules.all(16, 24));
}

TEST_CASE("granules: runs are what is there, or what is missing, and end with the chunk") {
    Granules granules = of(100);
    granules.set(16, 32);
    granules.set(96, 4);
    CHECK(runs(granules, 0, 100, true) == std::vector<Run>{{16, 48}, {96, 100}});
    CHECK(runs(granules, 0, 100, false) == std::vector<Run>{{0, 16}, {48, 96}});
    CHECK(runs(granules, 32, 48, true) == std::vector<Run>{{32, 48}});
    CHECK(runs(granules, 48, 96, true).empty());
}

TEST_CASE("granules: no bytes are all there") { CHECK(of(64).all(32, 0)); }

TEST_CASE("granules: a map of single granules says the same, across words") {
    std::mt19937 dice(7);
    for (int round = 0; round < 200; ++round) {
        const std::uint32_t count = 1 + dice() % 300;
        Granules granules = of(count * Granules::granule_bytes);
        std::vector<bool> model(count);
        for (int i = 0; i < 5; ++i) {
            const std::uint32_t first = dice() % count, length = 1 + dice() % (count - first);
            granules.set(first * Granules::granule_bytes, length * Granules::granule_bytes);
            for (std::uint32_t g = first; g < first + length; ++g) model[g] = true;
            for (const bool wanted : {false, true}) {
                std::vector<bool> seen(count);
                for (const Run& run : runs(granules, 0, count * Granules::granule_bytes, wanted))
                    for (std::uint32_t at = run.first; at < run.last; at += Granules::granule_bytes)
                        seen[at / Granules::granule_bytes] = true;
                for (std::uint32_t g = 0; g < count; ++g) REQUIRE(seen[g] == (model[g] == wanted));
            }
        }
    }
}

}  // namespace
}  // namespace dlcp

// TagMap: from (scope, tag) to a chain.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <utility>

#include "engine/tag_map.hpp"

namespace dlcp {
namespace {

TEST_CASE("tag map: a chain is empty when it is new, and the same when it is asked for again") {
    TagMap map;
    CHECK(map.find(1, 5) == nullptr);
    TagMap::Chain& chain = map.get(1, 5);
    CHECK(chain.first == UINT32_MAX);
    chain.first = 3;
    CHECK(map.get(1, 5).first == 3);
    CHECK(map.size() == 1);
}

TEST_CASE("tag map: the same tag in two scopes is two chains") {
    TagMap map;
    map.get(1, 5).first = 10;
    map.get(2, 5).first = 20;
    CHECK(map.find(1, 5)->first == 10);
    CHECK(map.find(2, 5)->first == 20);
    map.erase(1, 5);
    CHECK(map.find(1, 5) == nullptr);
    CHECK(map.find(2, 5)->first == 20);
}

TEST_CASE("tag map: erasing what is not there changes nothing") {
    TagMap map;
    map.get(0, 1);
    map.erase(0, 2);
    CHECK(map.size() == 1);
}

TEST_CASE("tag map: random changes agree with a sorted map") {
    std::mt19937 random(1);
    TagMap map;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> sorted;
    for (std::uint32_t i = 0; i < 20'000; ++i) {
        const std::uint32_t scope = random() % 3;
        const std::uint64_t tag = random() % 200;
        if (random() % 2 == 0) {
            map.get(scope, tag).first = i;
            sorted[{scope, tag}] = i;
        } else {
            map.erase(scope, tag);
            sorted.erase({scope, tag});
        }
        REQUIRE(map.size() == sorted.size());
        const std::uint64_t asked = random() % 200;
        const auto found = sorted.find({scope, asked});
        TagMap::Chain* const chain = map.find(scope, asked);
        REQUIRE((chain != nullptr) == (found != sorted.end()));
        if (chain != nullptr) REQUIRE(chain->first == found->second);
    }
}

}  // namespace
}  // namespace dlcp

// IdRing: values by consecutive id.
#include <doctest/doctest.h>

#include "engine/id_ring.hpp"

namespace dlcp {
namespace {

TEST_CASE("id ring: extend adds default values up to the id") {
    IdRing<int> ring;
    CHECK(ring.base() == 1);
    CHECK(!ring.contains(1));
    ring.extend(3);
    CHECK(ring.span() == 3);
    CHECK(ring.contains(3));
    CHECK(!ring.contains(4));
    CHECK(ring[2] == 0);
}

TEST_CASE("id ring: growing keeps every value") {
    IdRing<std::uint32_t> ring;
    for (std::uint32_t id = 1; id < 1000; ++id) {
        ring.extend(id);
        ring[id] = id * 3;
    }
    for (std::uint32_t id = 1; id < 1000; ++id) REQUIRE(ring[id] == id * 3);
}

TEST_CASE("id ring: what is below the base is forgotten, and its place is new") {
    IdRing<int> ring;
    for (std::uint32_t id = 1; id <= 16; ++id) {
        ring.extend(id);
        ring[id] = 7;
    }
    ring.advance(10);
    CHECK(!ring.contains(9));
    ring.extend(25);  // no larger ring is needed: 25 takes the place of 9
    CHECK(ring[25] == 0);
    CHECK(ring[16] == 7);
}

TEST_CASE("id ring: the base may pass the end") {
    IdRing<int> ring;
    ring.extend(2);
    ring.advance(100);
    CHECK(ring.span() == 0);
    CHECK(ring.end() == 100);
}

}  // namespace
}  // namespace dlcp

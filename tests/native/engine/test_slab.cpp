// Slab: objects by slot, reused without freeing.
#include <doctest/doctest.h>

#include <vector>

#include "engine/slab.hpp"

namespace dlcp {
namespace {

TEST_CASE("slab: an object keeps its address while others come") {
    Slab<int> slab;
    const std::uint32_t first = slab.take();
    int* const address = &slab[first];
    for (int i = 0; i < 1000; ++i) slab.take();
    CHECK(&slab[first] == address);
}

TEST_CASE("slab: a slot that is given back is taken again, as another life") {
    Slab<int> slab;
    const std::uint32_t slot = slab.take();
    const std::uint32_t generation = slab.generation(slot);
    CHECK(slab.in_use(slot, generation));
    slab.give_back(slot);
    CHECK(!slab.in_use(slot));
    CHECK(!slab.in_use(slot, generation));
    CHECK(slab.take() == slot);
    CHECK(slab.in_use(slot));
    CHECK(!slab.in_use(slot, generation));
}

TEST_CASE("slab: a reused object keeps what its last life left in it") {
    Slab<std::vector<int>> slab;
    const std::uint32_t slot = slab.take();
    slab[slot].reserve(100);
    slab.give_back(slot);
    slab.take();
    CHECK(slab[slot].capacity() >= 100);
}

TEST_CASE("slab: a number that was never given is not in use") {
    Slab<int> slab;
    CHECK(!slab.in_use(0, 0));
    CHECK(!slab.in_use(12345, 1));
}

}  // namespace
}  // namespace dlcp

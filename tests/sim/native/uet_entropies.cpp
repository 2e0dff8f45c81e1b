// UetEntropies: which entropy a packet takes.
#include "sim/core/transports/uet_entropies.hpp"

#include <set>

#include <doctest/doctest.h>

namespace dlcp::sim {
namespace {

constexpr std::uint64_t random_bits = 0x0123'4567'89ab'cdef;

std::set<int> round_of(UetEntropies& entropies, int count) {
    std::set<int> seen;
    for (int i = 0; i < count; ++i) seen.insert(entropies.pick());
    return seen;
}

TEST_CASE("uet entropies: each round takes every entropy once") {
    UetEntropies entropies(16, false, random_bits);
    for (int round = 0; round < 3; ++round) CHECK(round_of(entropies, 16).size() == 16);
}

TEST_CASE("uet entropies: one that came back without a mark is used next") {
    UetEntropies entropies(16, true, random_bits);
    entropies.judge(entropies.path_of(5), false);
    CHECK(entropies.pick() == 5);
}

TEST_CASE("uet entropies: without recycling all take turns") {
    UetEntropies entropies(16, false, random_bits);
    for (int i = 0; i < 16; ++i) entropies.judge(entropies.path_of(5), false);
    CHECK(round_of(entropies, 16).size() == 16);
}

TEST_CASE("uet entropies: a penalised one sits so many rounds out") {
    UetEntropies entropies(16, false, random_bits);
    entropies.penalise(5, 2);
    CHECK(round_of(entropies, 15).count(5) == 0);
    CHECK(round_of(entropies, 15).count(5) == 0);
    CHECK(round_of(entropies, 16).count(5) == 1);
}

TEST_CASE("uet entropies: if all sit out, one is taken all the same") {
    UetEntropies entropies(2, false, random_bits);
    entropies.penalise(0, UetEntropies::lost_penalty);
    entropies.penalise(1, UetEntropies::lost_penalty);
    CHECK(entropies.pick() < 2);
}

}  // namespace
}  // namespace dlcp::sim

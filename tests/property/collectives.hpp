// A random run of collectives: a few ranks, groups of them, what they call and when, what the network does, and
// possibly one rank that goes wrong; all from one seed.
//
// What the world cannot know is judged here: that everything ends in time, and who is to blame when a rank goes wrong.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "scenario.hpp"
#include "support/native/dice.hpp"

namespace dlcp::test {

// `network_seed` moves packets differently; the results must not depend on it.
Verdict run_collectives(std::uint64_t seed, std::uint64_t network_seed, std::FILE* trace);
inline Verdict run_collectives(std::uint64_t seed, std::FILE* trace) { return run_collectives(seed, seed, trace); }

// Drawn alike by other worlds of collectives: a host's settings; how many elements of `width` bytes a part has.
EndpointConfig random_config(Dice& dice);
std::uint32_t random_elements(Dice& dice, std::uint32_t width, std::uint32_t datagram_bytes, bool small);

}  // namespace dlcp::test

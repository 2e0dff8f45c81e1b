// A random run of collectives: a few ranks, groups of them, what they call and when, what the network does, and
// possibly one rank that goes wrong; all from one seed.
//
// What the world cannot know is judged here: that everything ends in time, and who is to blame when a rank goes wrong.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "scenario.hpp"

namespace dlcp::test {

// `network_seed` moves packets differently; the results must not depend on it.
Verdict run_collectives(std::uint64_t seed, std::uint64_t network_seed, std::FILE* trace);
inline Verdict run_collectives(std::uint64_t seed, std::FILE* trace) { return run_collectives(seed, seed, trace); }

}  // namespace dlcp::test

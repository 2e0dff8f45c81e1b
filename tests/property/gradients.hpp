// A random run of bounded collectives among plain ones: ranks, links that lose in many ways and unevenly, how much each
// rank may lose of what, and possibly one rank that is killed; all from one seed.
//
// What was lost and what came out, the world judges (collective_loss.hpp); here, that everything ends and nothing stays.
#pragma once

#include <cstdint>
#include <cstdio>

#include "scenario.hpp"

namespace dlcp::test {

// `network_seed` moves packets differently; what may not lose must not depend on it.
Verdict run_gradients(std::uint64_t seed, std::uint64_t network_seed, std::FILE* trace);

}  // namespace dlcp::test

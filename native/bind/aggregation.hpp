// What bindings of switches that add have in common.
#pragma once

#include <vector>

#include "bind/bind.hpp"
#include "switch/aggregation.hpp"

namespace dlcp::bind {

struct AggregationCounts {
    std::uint32_t job = 0;
    std::uint16_t generation = 0;
    switching::OutcomeCounts outcomes{};
};

// A copy, for which the GIL need not be held.
std::vector<AggregationCounts> counts_of(const switching::AggregationSlots& slots);

// Per job: its number, its generation, and what became of its packets, by name.
nb::list aggregation_counts(const std::vector<AggregationCounts>& counts);

}  // namespace dlcp::bind

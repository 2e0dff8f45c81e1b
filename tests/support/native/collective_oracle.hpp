// What a collective must have done to the memory of all its ranks: slow, sequential, one operation after the other.
//
// It runs the same schedules as the executor, whole chunk by whole chunk: an operation waits for nothing but the
// message it receives, and a message is a copy. So it has no blocks, no order of arrival and no overlap, and what it
// computes in the schedule's order is what the executor must compute to the bit.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "collective/element.hpp"
#include "support/native/schedule_set.hpp"

namespace dlcp::test {

// The caller's chunks on one rank.
struct RankMemory {
    std::vector<std::vector<std::uint8_t>> input;
    std::vector<std::vector<std::uint8_t>> output;
    // This output chunk is that input chunk's memory: the input's bytes are those of the output.
    std::optional<std::pair<std::uint32_t, std::uint32_t>> in_place;
};

// What of lossy messages did not come: it counts as nothing. `rescale`: a result is divided by what came of it, or, if it is
// not an average, made what it would be of as many contributions as there are ranks.
struct Losses {
    // From, to, number; first byte and end of what is missing.
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>,
             std::vector<std::pair<std::uint32_t, std::uint32_t>>>
        missing;
    bool rescale = false;
};

// `ranks`: before, and then after. Throws std::logic_error: the schedules wait for each other in a circle.
void run_slowly(const ScheduleSet& set, DataType type, ReduceOp op, std::uint32_t average_over,
                std::vector<RankMemory>& ranks, const Losses& losses = {});

}  // namespace dlcp::test

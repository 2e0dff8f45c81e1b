// One collective with one algorithm, world size and root: what each of its ranks does, ready to run.
//
// Its chunks name the parts that they hold versions of: chunks of one part have one size on all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/schedule.hpp"

namespace dlcp::test {

struct RankPlan {
    std::vector<std::uint32_t> input_parts;
    std::vector<std::uint32_t> output_parts;
    // An input and an output chunk that may be the same memory.
    std::optional<std::pair<std::uint32_t, std::uint32_t>> in_place;
    std::shared_ptr<const Schedule> schedule;
};

struct ScheduleSet {
    std::string name;
    std::string collective;
    std::string algorithm;
    std::uint32_t root = 0;
    std::uint32_t parts = 0;
    std::vector<RankPlan> ranks;

    std::uint32_t world_size() const { return static_cast<std::uint32_t>(ranks.size()); }
    bool bounded() const { return collective.starts_with("bounded_"); }
    bool reduces() const {
        return bounded() || collective == "all_reduce" || collective == "reduce_scatter" || collective == "reduce";
    }
};

}  // namespace dlcp::test

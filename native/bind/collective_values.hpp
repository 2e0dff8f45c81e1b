// Values of collectives that cross into Python: the schedule of a rank, rules of loss, how a collective ended.
//
// They are bound once, in dlcp._native. dlcp_sim._core imports that module and takes and returns the same classes.
#pragma once

#include <nanobind/ndarray.h>

#include <memory>
#include <span>
#include <vector>

#include "bind/bind.hpp"
#include "collective/executor.hpp"

namespace dlcp::bind {

// Held by shared_ptr on both sides: a collective under way keeps its schedule.
struct BoundSchedule {
    std::shared_ptr<const Schedule> schedule;
};

using ImportanceBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Holds the arrays that its rules' importance points to.
struct BoundLossRules {
    LossRules rules;
    std::vector<ImportanceBytes> arrays;
    std::vector<std::span<const std::uint8_t>> importance;  // by rank in the group; empty: all critical
};

void bind_collective_values(nb::module_& module);

}  // namespace dlcp::bind

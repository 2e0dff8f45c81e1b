// How a driver lists counters of its own (Driver::statistics in driver_table.hpp).
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "io/io_table.h"

namespace dlcp {

inline void append(std::vector<dlcp_io_statistic>& out, const std::string& name, std::uint64_t value) {
    dlcp_io_statistic statistic = {};
    std::snprintf(statistic.name, sizeof statistic.name, "%s", name.c_str());
    statistic.value = value;
    out.push_back(statistic);
}

}  // namespace dlcp

// Counters as dictionaries of plain numbers; durations in seconds. dlcp.transport.statistics gives them types.
#pragma once

#include "bind/bind.hpp"
#include "io/runtime.hpp"

namespace dlcp::bind {

nb::dict to_dict(const RuntimeStatistics& statistics);
nb::dict to_dict(const PeerStatistics& statistics);
nb::dict to_dict(const PathStatistics& statistics);

inline double in_seconds(Duration duration) { return static_cast<double>(duration.value) * 1e-9; }

}  // namespace dlcp::bind

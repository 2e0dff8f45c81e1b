// The counters of a port's device as statistics of a driver (io_table.h). Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/io_table.h"

namespace dlcp::dpdk {

// Names of the extended counters, by place, in lower-case letters, digits and _; empty: one that is among the basic counters.
std::vector<std::string> extended_statistic_names(std::uint16_t port);
// Basic counters, then extended ones, each "port<N>_…".
void append_port_statistics(std::uint16_t port, const std::vector<std::string>& extended_names,
                            std::vector<dlcp_io_statistic>& out);

}  // namespace dlcp::dpdk

// DPDK's environment abstraction layer: started once per process, by whoever comes first, and never stopped.
//
// It is started on a thread of its own, so that it pins nobody else's to a core; what it logs is kept, and its last
// lines become part of the sentence when something fails. Any thread.
#pragma once

#include <string>

#include "io/dpdk/options.hpp"

namespace dlcp::dpdk {

// Starts it with these arguments (as after `--` of a DPDK program, quoted as in a shell). Where they do not say, what
// suits several ranks on a host is added: see eal.cpp. Started already: 0 if the arguments are the same or empty, else
// -EALREADY. Other errors name what is missing: hugepages, permission, a device, an unknown argument.
int start_eal(const std::string& arguments, ErrorText error);
bool eal_started();
// As it was started, with what was added; empty: it was not.
std::string eal_arguments();
// The last lines of DPDK's log, oldest first.
std::string eal_log();

}  // namespace dlcp::dpdk

// Arguments of DPDK's environment abstraction layer: read as a shell reads them, looked over for what would end the
// process, and completed with what suits several ranks on a host. Pure; knows nothing of DPDK's libraries.
#pragma once

#include <string>
#include <vector>

#include "io/error_text.hpp"

namespace dlcp::dpdk {

using Arguments = std::vector<std::string>;

// What is refused below is refused with -EDOM, as words are (options.hpp).

// Splits by blanks. '…' keeps all, "…" keeps all but \" and \\, \x is x. An open quote is an error.
int split_arguments(const std::string& text, Arguments& out, ErrorText error);
// The reverse, for people: quoted where that is needed.
std::string join_arguments(const Arguments& arguments);

// Whether an option is given: by its long name without dashes, or by its letter.
bool has_option(const Arguments& arguments, const std::string& long_name, char letter = 0);

// Refuses what DPDK would answer with exit(), as help and options that are not known, and words that belong to no option.
int check_arguments(const Arguments& arguments, ErrorText error);

// What is added where the arguments leave it open. `cpus`: those that the caller may run on.
//   --lcores=0@(CPUS)  one lcore that floats over them: DPDK's own default is a thread pinned to each CPU
//   --in-memory        nothing in hugetlbfs and /var/run: ranks do not meet, and memory goes back when one dies
//   --no-shconf        the same for --no-huge, which cannot be combined with --in-memory
//   --no-telemetry     no socket and no thread for it
Arguments added_arguments(const Arguments& arguments, const std::vector<unsigned>& cpus);

}  // namespace dlcp::dpdk

// Why DPDK did not start, for a person: read from the errors that it logged. Pure; knows nothing of DPDK's libraries.
#pragma once

#include <span>
#include <string>

namespace dlcp::dpdk {

// The line that shows the cause, and what to do about it. `errors`: oldest first, warnings and notices left out, since
// DPDK tells of much that harms nothing. Empty: no cause that is known.
std::string explain_failure(std::span<const std::string> errors);

extern const char* const hugepage_advice;

}  // namespace dlcp::dpdk

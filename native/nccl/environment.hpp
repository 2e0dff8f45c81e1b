// Settings from the environment, for a process where no Python of dlcp's reads them (dlcp/transport/settings.py).
#pragma once

#include "io/runtime_options.hpp"

namespace dlcp::nccl {

// What the variables DLCP_* say about a runtime and its engine. Those of a job are left out, and so are unknown names: in
// NCCL's process they may be meant for a backend beside. Throws std::invalid_argument: a value will not do; the sentence
// names the variable and what is accepted.
RuntimeOptions options_from_environment();

}  // namespace dlcp::nccl

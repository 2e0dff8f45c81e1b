// The calls of one group, numbered, noted and recorded as they start.
#pragma once

#include "bind/bind.hpp"

namespace dlcp::bind {

void bind_group_calls(nb::module_& module);

}  // namespace dlcp::bind

// Collectives and schedules for Python.
#pragma once

#include "bind/bound_runtime.hpp"

namespace dlcp::bind {

void bind_collectives(nb::module_& m, nb::class_<BoundRuntime>& runtime);

}  // namespace dlcp::bind

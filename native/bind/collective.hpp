// Collectives and schedules for Python.
#pragma once

#include "bind/bound_host.hpp"

namespace dlcp::bind {

void bind_collectives(nb::module_& m, nb::class_<BoundHost>& host);

}  // namespace dlcp::bind

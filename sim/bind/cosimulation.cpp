#include "sim/bind/bind.hpp"

namespace dlcp::sim::bind {

void bind_cosimulation(nb::module_&) {}

}  // namespace dlcp::sim::bind

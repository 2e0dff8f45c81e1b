// Placeholder until the transport lands in this file: naming it says so.
#include <stdexcept>

#include "sim/core/transports/registry.hpp"

namespace dlcp::sim {

std::unique_ptr<Transport> make_uet(Parameters) { throw std::invalid_argument("transport \"uet\" is not built yet"); }

}  // namespace dlcp::sim

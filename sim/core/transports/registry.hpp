// Every transport there is, by its factory. A new one is a file of its own, a line here and one in registry.cpp.
#pragma once

#include <memory>

#include "sim/core/transport.hpp"

namespace dlcp::sim {

std::unique_ptr<Transport> make_line_rate(Parameters parameters);
std::unique_ptr<Transport> make_tcp(Parameters parameters);
std::unique_ptr<Transport> make_dctcp(Parameters parameters);
std::unique_ptr<Transport> make_pfabric(Parameters parameters);
std::unique_ptr<Transport> make_ndp(Parameters parameters);
std::unique_ptr<Transport> make_dcqcn(Parameters parameters);
std::unique_ptr<Transport> make_uet(Parameters parameters);
std::unique_ptr<Transport> make_dlcp(Parameters parameters);

}  // namespace dlcp::sim

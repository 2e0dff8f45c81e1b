// What an interface's card or driver does of itself to frames, as `ethtool -k` lists it.
#pragma once

#include <set>
#include <string>

namespace dlcp::xdp {

// Those that are on, by the kernel's names (netdev_features_strings in its net/ethtool/common.c), of which ethtool calls
// some otherwise; empty: it does not say. `socket`: any.
std::set<std::string> active_features(int socket, const std::string& interface_name);

}  // namespace dlcp::xdp

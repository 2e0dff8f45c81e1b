// Queries about a network interface by name: does it exist, is it up, how long may its frames be.
#pragma once

#include <cstdint>
#include <string>

namespace dlcp::softswitch {

// PortError unless there is one.
int interface_index(const std::string& name);
// Of the payload, without the Ethernet header.
std::uint32_t interface_mtu(const std::string& name);
// Whether its frames begin with Ethernet's header.
bool interface_is_ethernet(const std::string& name);
// Whether it is up and has a carrier. By index: an interface of the same name that was made later is another one.
bool interface_runs(int index);
void bring_interface_up(const std::string& name);

// The error to throw after `what` failed with errno, with advice where there is any.
[[noreturn]] void fail_port(const std::string& name, const std::string& what, int number);

}  // namespace dlcp::softswitch

// What is asked of a network interface by name: is it there, up, how long may its frames be.
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
// Up, and its carrier as well. By number: another one of the same name, made later, is another one.
bool interface_runs(int index);
void bring_interface_up(const std::string& name);

// `what` failed with errno: the error to throw, with what would help where that is known.
[[noreturn]] void fail_port(const std::string& name, const std::string& what, int number);

}  // namespace dlcp::softswitch

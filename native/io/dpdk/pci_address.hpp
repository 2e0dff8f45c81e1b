// PCI addresses as people write them. Pure.
#pragma once

#include <optional>
#include <string>

namespace dlcp::dpdk {

// "3b:00.0" and "0000:3B:00.0" as "0000:3b:00.0"; none: it is something else.
std::optional<std::string> pci_address(std::string text);

}  // namespace dlcp::dpdk

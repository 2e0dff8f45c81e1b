// The network interfaces that NCCL may send through: each is one device.
#pragma once

#include <string>
#include <vector>

#include "io/udp_address.hpp"

namespace dlcp::nccl {

struct Device {
    std::string name;      // the interface's
    std::string host;      // its first address
    std::string pci_path;  // empty: virtual
    int speed_mbps = 0;
};

// Interfaces that are up and that `pattern` lets through, written as in NCCL_SOCKET_IFNAME (dlcp/transport/interfaces.py).
// Empty: all but loopback and Docker's, or loopback if there is nothing else. Never blocks.
std::vector<Device> find_devices(const std::string& pattern, const std::vector<udp::Interface>& interfaces);

}  // namespace dlcp::nccl

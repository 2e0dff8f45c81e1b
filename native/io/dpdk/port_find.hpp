// Which port of DPDK a name means, and who of this process has it.
#pragma once

#include <rte_ethdev.h>

#include <cstdint>
#include <string>

#include "io/error_text.hpp"

namespace dlcp::dpdk {

// What a port's device is, for people and for the few places where drivers differ.
struct PortIdentity {
    std::uint16_t id = 0;
    std::string name;                       // of the device: "0000:3b:00.0", "net_memif0"
    std::string driver;                     // "mlx5_pci"
    std::string arguments;                  // of the device: "iface=eth0,framesz=2048"
    bool is_virtual = false;                // made by --vdev: no card of its own
    unsigned interface_index = 0;           // of the kernel's interface that the device lies over; 0: none
    std::string interface_name;             // empty: none, or not in this namespace
    std::uint32_t interface_mtu_bytes = 0;  // the kernel's; 0: not known
    std::uint32_t mtu_bytes = 0;            // the device's; 0: not known
};

PortIdentity identify(std::uint16_t id);

// Finds a port by PCI address (with or without domain), name, number or the kernel's interface; empty: the only one.
// 0, or -ENODEV with a sentence that names those there are, and what the kernel knows of a PCI address.
int find_port(const std::string& device, std::uint16_t& out, ErrorText error);

// A port has one driver at a time. false: it is taken.
bool claim_port(std::uint16_t id);
void release_port(std::uint16_t id);
bool is_claimed(std::uint16_t id);

}  // namespace dlcp::dpdk

// What a port is configured to, decided from what was asked for and what its device says that it can. Touches nothing.
#pragma once

#include <rte_ethdev.h>

#include <cstdint>
#include <string>

#include "io/dpdk/port.hpp"
#include "io/dpdk/port_find.hpp"
#include "io/driver_config.hpp"

namespace dlcp::dpdk {

struct PortSetup {
    rte_eth_conf conf{};
    PortAbilities abilities;
    std::uint16_t descriptors = 1024;   // to ask for, of each queue either way
    std::uint32_t data_room_bytes = 0;  // of a buffer, headroom included
    bool sets_mtu = false;              // the device is to be told, beyond conf.rxmode.mtu
    std::uint16_t vlan = 0;             // that it is to be told to let through; 0: it lets all through
    std::string warnings;               // lines
};

// How many packets fit in a queue of the device when nobody reads, whatever it was configured to.
std::uint32_t ring_packets(const PortIdentity& port);

// 0 or a negative errno with a sentence: what was insisted on and the device cannot.
int plan_port(const PortIdentity& port, const rte_eth_dev_info& info, const PortConfig& config, PortSetup& out,
              ErrorText error);

}  // namespace dlcp::dpdk

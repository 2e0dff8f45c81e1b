// Taking only our datagrams off a card that the kernel uses too (rte_flow_isolate and a few rules).
#pragma once

#include "io/dpdk/port.hpp"
#include "io/dpdk/port_find.hpp"

namespace dlcp::dpdk {

// Before the port is configured.
int isolate_flows(const PortIdentity& port, ErrorText error);
// The reverse, after the port was stopped.
void share_flows(std::uint16_t port);
// After it was started: datagrams to config.udp_port, and to where its paths leave from, come to the queues, by RSS if
// there are several.
int steer_datagrams(const PortIdentity& port, const PortConfig& config, std::uint16_t queues, ErrorText error);

}  // namespace dlcp::dpdk

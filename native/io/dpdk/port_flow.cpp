// The flow rules of an isolated port.
#include "io/dpdk/port_flow.hpp"

#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

#include <array>
#include <cerrno>
#include <numeric>
#include <vector>

#include "io/dpdk/port_blocks.hpp"

namespace dlcp::dpdk {
namespace {

int fail(const PortIdentity& port, int rc, const rte_flow_error& why, ErrorText error) {
    const bool cannot = rc >= 0 || rc == -ENOTSUP || rc == -ENOSYS || rc == -EINVAL;
    return error.fail(
        cannot ? EDOM : -rc,
        "flow_isolation=on: port %s (%s) cannot take single flows off the kernel: %s; cards of the mlx5 "
        "family can",
        port.name.c_str(), port.driver.c_str(), why.message != nullptr ? why.message : "not supported");
}

}  // namespace

int isolate_flows(const PortIdentity& port, ErrorText error) {
    rte_flow_error why{};
    const int rc = rte_flow_isolate(port.id, 1, &why);
    return rc == 0 ? 0 : fail(port, rc, why, error);
}

void share_flows(std::uint16_t port) {
    rte_flow_error why{};
    rte_flow_isolate(port, 0, &why);
}

int steer_datagrams(const PortIdentity& port, const PortConfig& config, std::uint16_t queues, ErrorText error) {
    rte_flow_item_vlan vlan{}, vlan_mask{};
    vlan.hdr.vlan_tci = rte_cpu_to_be_16(config.vlan);
    vlan_mask.hdr.vlan_tci = rte_cpu_to_be_16(0x0fff);
    rte_flow_item_udp udp{}, udp_mask{};
    std::vector<rte_flow_item> pattern{{.type = RTE_FLOW_ITEM_TYPE_ETH}};
    if (config.vlan != 0) pattern.push_back({.type = RTE_FLOW_ITEM_TYPE_VLAN, .spec = &vlan, .mask = &vlan_mask});
    pattern.push_back({.type = config.address.is_v6() ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4});
    pattern.push_back({.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &udp, .mask = &udp_mask});
    pattern.push_back({.type = RTE_FLOW_ITEM_TYPE_END});

    const rte_flow_action_queue only{.index = 0};
    std::vector<std::uint16_t> all(queues);
    std::iota(all.begin(), all.end(), std::uint16_t{0});
    rte_flow_action_rss spread{};
    spread.types = config.address.is_v6() ? RTE_ETH_RSS_NONFRAG_IPV6_UDP : RTE_ETH_RSS_NONFRAG_IPV4_UDP;
    spread.queue_num = queues;
    spread.queue = all.data();
    std::array<rte_flow_action, 2> actions{};
    actions[0] = queues == 1 ? rte_flow_action{RTE_FLOW_ACTION_TYPE_QUEUE, &only}
                             : rte_flow_action{RTE_FLOW_ACTION_TYPE_RSS, &spread};
    actions[1] = {RTE_FLOW_ACTION_TYPE_END, nullptr};

    rte_flow_attr attributes{};
    attributes.ingress = 1;
    rte_flow_error why{};
    // The rules go when the port is stopped.
    for (const PortBlock& block : path_port_blocks(config.udp_port, config.paths)) {
        udp.hdr.dst_port = rte_cpu_to_be_16(block.first);
        udp_mask.hdr.dst_port = rte_cpu_to_be_16(block.mask);
        if (rte_flow_create(port.id, &attributes, pattern.data(), actions.data(), &why) == nullptr) {
            return fail(port, -rte_errno, why, error);
        }
    }
    return 0;
}

}  // namespace dlcp::dpdk

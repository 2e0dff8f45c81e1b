// The C functions behind dlcp.transport.dpdk: start of DPDK, its ports, its log.
#include "io/dpdk/control.h"

#include <rte_ethdev.h>
#include <rte_version.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "io/dpdk/eal.hpp"
#include "io/dpdk/port_find.hpp"
#include "io/dpdk/port_statistics.hpp"

namespace {

using dlcp::ErrorText;

std::size_t copy_text(std::string (*from)(), char* text, std::size_t text_bytes) noexcept {
    if (text != nullptr && text_bytes > 0) text[0] = '\0';
    try {
        const std::string all = from();
        if (text != nullptr && text_bytes > 0) std::snprintf(text, text_bytes, "%s", all.c_str());
        return all.size();
    } catch (const std::exception&) {
        return 0;  // no memory for it
    }
}

int fail_unstarted(ErrorText error) { return error.fail(EPERM, "DPDK has not been started in this process"); }

dlcp_dpdk_port describe(std::uint16_t id) {
    const dlcp::dpdk::PortIdentity identity = dlcp::dpdk::identify(id);
    dlcp_dpdk_port port{};
    port.id = id;
    std::snprintf(port.name, sizeof port.name, "%s", identity.name.c_str());
    std::snprintf(port.driver, sizeof port.driver, "%s", identity.driver.c_str());
    port.claimed = dlcp::dpdk::is_claimed(id) ? 1 : 0;
    rte_eth_link link{};
    if (rte_eth_link_get_nowait(id, &link) == 0) {
        port.link_up = link.link_status == RTE_ETH_LINK_UP ? 1 : 0;
        port.full_duplex = link.link_duplex == RTE_ETH_LINK_FULL_DUPLEX ? 1 : 0;
        port.speed_mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
    }
    rte_ether_addr mac{};
    if (rte_eth_macaddr_get(id, &mac) == 0) std::memcpy(port.mac, mac.addr_bytes, sizeof port.mac);
    port.numa_node = rte_eth_dev_socket_id(id);
    std::uint16_t mtu = 0;
    if (rte_eth_dev_get_mtu(id, &mtu) == 0) port.mtu_bytes = mtu;
    rte_eth_dev_info info{};
    if (rte_eth_dev_info_get(id, &info) == 0) {
        port.rx_queues_max = info.max_rx_queues;
        port.tx_queues_max = info.max_tx_queues;
    }
    return port;
}

// What `work` answers; an exception, which is a lack of memory or of a thread, as -ENOMEM.
template <class Work>
int guarded(ErrorText error, Work&& work) noexcept {
    try {
        return work();
    } catch (const std::exception& failure) {
        return error.fail(ENOMEM, "not enough memory: %s", failure.what());
    }
}

}  // namespace

extern "C" {

uint32_t dlcp_dpdk_control_version(void) { return DLCP_DPDK_CONTROL_VERSION; }

const char* dlcp_dpdk_version(void) { return rte_version(); }

int dlcp_dpdk_start(const char* eal_arguments, char* error, size_t error_bytes) {
    const ErrorText failed{error, error_bytes};
    return guarded(failed,
                   [&] { return dlcp::dpdk::start_eal(eal_arguments != nullptr ? eal_arguments : "", failed); });
}

int dlcp_dpdk_started(void) { return dlcp::dpdk::eal_started() ? 1 : 0; }

size_t dlcp_dpdk_arguments(char* text, size_t text_bytes) {
    return copy_text(dlcp::dpdk::eal_arguments, text, text_bytes);
}

size_t dlcp_dpdk_log(char* text, size_t text_bytes) { return copy_text(dlcp::dpdk::eal_log, text, text_bytes); }

int dlcp_dpdk_ports(dlcp_dpdk_port* out, int n, char* error, size_t error_bytes) {
    const ErrorText failed{error, error_bytes};
    if (!dlcp::dpdk::eal_started()) return fail_unstarted(failed);
    return guarded(failed, [&] {
        int count = 0;
        uint16_t id;
        RTE_ETH_FOREACH_DEV(id) {
            if (count < n) out[count] = describe(id);
            ++count;
        }
        return count;
    });
}

int dlcp_dpdk_statistics(uint16_t port, dlcp_io_statistic* out, int n, char* error, size_t error_bytes) {
    const ErrorText failed{error, error_bytes};
    if (!dlcp::dpdk::eal_started()) return fail_unstarted(failed);
    if (!rte_eth_dev_is_valid_port(port)) return failed.fail(ENODEV, "DPDK has no port %u", unsigned{port});
    return guarded(failed, [&] {
        std::vector<dlcp_io_statistic> all;
        dlcp::dpdk::append_port_statistics(port, dlcp::dpdk::extended_statistic_names(port), all);
        std::copy_n(all.begin(), std::min<std::size_t>(all.size(), n > 0 ? static_cast<std::size_t>(n) : 0), out);
        return static_cast<int>(all.size());
    });
}

}  // extern "C"

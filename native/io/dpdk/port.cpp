// Opens, starts and stops a port.
#include "io/dpdk/port.hpp"

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "io/dpdk/eal_log.hpp"
#include "io/dpdk/interrupt_thread.hpp"
#include "io/dpdk/link.hpp"
#include "io/dpdk/port_find.hpp"
#include "io/dpdk/port_flow.hpp"
#include "io/dpdk/port_pools.hpp"
#include "io/dpdk/port_setup.hpp"
#include "io/dpdk/port_statistics.hpp"

namespace dlcp::dpdk {
namespace {

// Buffers beyond what the queues hold: bursts under way, what the engine has lent, packets that wait for a neighbour,
// and what lies in the driver's cache (lcore.hpp).
constexpr std::uint32_t spare_buffers = 1024 + 512;
constexpr std::int64_t link_wait_ms = 2000;

// `since`: a mark of the log before what failed.
std::string reason(int rc, std::uint64_t since) {
    const std::string log = last_complaints(since, 2);
    return std::string(std::strerror(-rc)) + (log.empty() ? "" : "; DPDK's log: " + log);
}

std::uint64_t device_drops(std::uint16_t id) {
    rte_eth_stats stats{};
    if (rte_eth_stats_get(id, &stats) != 0) return 0;
    return stats.imissed + stats.rx_nombuf;
}

// Whose driver always says that there is a link.
bool asks_kernel_of_link(const std::string& driver) { return driver == "net_af_packet" || driver == "net_af_xdp"; }

bool is_eventfd(int descriptor) {
    std::error_code failed;
    const auto target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failed);
    return !failed && target.string().find("[eventfd]") != std::string::npos;
}

// Configures queues and starts; with receive interrupts if `setup` asks for them and the device goes along.
int start_port(std::uint16_t id, PortSetup& setup, rte_mempool* receive_pool, std::string& failed) {
    PortAbilities& can = setup.abilities;
    int rc = rte_eth_dev_configure(id, can.queues, can.queues, &setup.conf);
    failed = "configure";
    if (rc < 0) return rc;
    can.rx_descriptors = can.tx_descriptors = setup.descriptors;
    rc = rte_eth_dev_adjust_nb_rx_tx_desc(id, &can.rx_descriptors, &can.tx_descriptors);
    if (rc < 0) return rc;
    if (setup.sets_mtu) {
        // Of devices over an interface of the kernel, it is that one's; the others know from the configuration.
        const int set = rte_eth_dev_set_mtu(id, static_cast<std::uint16_t>(can.mtu_bytes));
        if (set < 0 && set != -ENOTSUP) {
            setup.warnings += "port " + std::to_string(id) + ": it does not take an MTU of " +
                              std::to_string(can.mtu_bytes) + ": " + std::strerror(-set) + "\n";
        }
    }
    rte_eth_dev_info info{};
    rc = rte_eth_dev_info_get(id, &info);
    if (rc < 0) return rc;
    const int node = rte_eth_dev_socket_id(id);
    for (std::uint16_t queue = 0; queue < can.queues; ++queue) {
        rte_eth_rxconf receive = info.default_rxconf;
        receive.offloads = setup.conf.rxmode.offloads;
        failed = "set up receive queue " + std::to_string(queue) + " of";
        rc = rte_eth_rx_queue_setup(id, queue, can.rx_descriptors, static_cast<unsigned>(node), &receive,
                                    receive_pool);
        if (rc < 0) return rc;
        rte_eth_txconf transmit = info.default_txconf;
        transmit.offloads = setup.conf.txmode.offloads;
        failed = "set up transmit queue " + std::to_string(queue) + " of";
        rc = rte_eth_tx_queue_setup(id, queue, can.tx_descriptors, static_cast<unsigned>(node), &transmit);
        if (rc < 0) return rc;
    }
    failed = "start";
    return rte_eth_dev_start(id);
}

}  // namespace

int Port::open(const PortConfig& config, std::unique_ptr<Port>& out, ErrorText error) {
    std::uint16_t id = 0;
    if (const int rc = find_port(config.device, id, error); rc < 0) return rc;
    const PortIdentity identity = identify(id);
    if (!claim_port(id)) {
        return error.fail(
            EBUSY,
            "port %s is in use by another transport of this process, which has to close first; or it was named "
            "twice here",
            identity.name.c_str());
    }
    std::unique_ptr<Port> port(new Port);
    port->id_ = id;
    port->claimed_ = true;
    port->name_ = identity.name;
    port->driver_ = identity.driver;
    if (const int rc = port->setup(config, error); rc < 0) return rc;
    out = std::move(port);
    return 0;
}

int Port::setup(const PortConfig& config, ErrorText error) {
    const PortIdentity identity = identify(id_);
    const std::uint64_t mark = log_mark();
    rte_eth_dev_info info{};
    int rc = rte_eth_dev_info_get(id_, &info);
    if (rc < 0)
        return error.fail(-rc, "port %s does not say what it is: %s", name_.c_str(), reason(rc, mark).c_str());
    PortSetup setup;
    rc = plan_port(identity, info, config, setup, error);
    if (rc < 0) return rc;
    if (config.flow_isolation) {
        rc = isolate_flows(identity, error);
        if (rc < 0) return rc;
        isolates_flows_ = true;
    }
    rc = take_pools(setup, info.rx_desc_lim.nb_min, info.tx_desc_lim.nb_min, error);
    if (rc < 0) return rc;
    rc = start(setup, identity, mark, error);
    if (rc < 0) return rc;
    if (config.flow_isolation) {
        rc = steer_datagrams(identity, config, abilities_.queues, error);
        if (rc < 0) return rc;
        warn("port " + name_ +
             ": with flow_isolation ARP and neighbour discovery stay with the kernel, so the "
             "kernel's interface must have the same address, and peers be given as neighbour=ADDRESS@MAC");
    }
    interrupt_descriptors_.assign(abilities_.queues, -1);
    interrupts_need_reading_.assign(abilities_.queues, false);
    if (setup.conf.intr_conf.rxq != 0) find_interrupts();
    extended_names_ = extended_statistic_names(id_);
    rx_dropped_before_ = device_drops(id_);
    await_link(identity, info.speed_capa != 0);
    return 0;
}

int Port::take_pools(const PortSetup& setup, std::uint16_t rx_descriptors_min, std::uint16_t tx_descriptors_min,
                     ErrorText error) {
    const auto buffers = [&](std::uint16_t least) {
        // The device may hold more descriptors than asked for, never more than these.
        return setup.abilities.queues * std::uint32_t{std::max(setup.descriptors, least)} + spare_buffers;
    };
    PoolSize size{.buffers = buffers(rx_descriptors_min),
                  .data_room_bytes = setup.data_room_bytes,
                  .numa_node = rte_eth_dev_socket_id(id_)};
    if (const int rc = take_pool(id_, PoolUse::receive, size, receive_pool_, error); rc < 0) return rc;
    size.buffers = buffers(tx_descriptors_min);
    return take_pool(id_, PoolUse::transmit, size, transmit_pool_, error);
}

// `mark`: of the log, from where lines explain a failure.
int Port::start(PortSetup& setup, const PortIdentity& identity, std::uint64_t mark, ErrorText error) {
    // Others, mlx5 say, go on when their interface moves to another namespace.
    const bool lies_over_it = asks_kernel_of_link(driver_) || driver_ == "net_tap";
    link_ = std::make_unique<LinkWatch>(id_, InterfaceBelow{.index = lies_over_it ? identity.interface_index : 0,
                                                            .knows_link = asks_kernel_of_link(driver_)});
    const bool is_memif = driver_ == "net_memif";
    must_reconnect_ = is_memif && identity.arguments.find("role=server") == std::string::npos &&
                      identity.arguments.find("role=master") == std::string::npos;
    auto hold = is_memif ? std::make_unique<InterruptHold>() : nullptr;
    std::string failed;
    int rc = start_port(id_, setup, receive_pool_, failed);
    if (rc < 0 && setup.conf.intr_conf.rxq != 0) {
        // Not every driver has interrupts of receive queues, and there is no asking.
        setup.conf.intr_conf.rxq = 0;
        rc = start_port(id_, setup, receive_pool_, failed);
    }
    hold.reset();
    if (is_memif && !must_reconnect_ && rc == 0) {
        // A memif server connects clients while it is stopped as well, and one that came before these queues writes into
        // others (22.11): it is sent away, and comes again.
        stop();
        rc = on_interrupt_thread(rte_eth_dev_start, id_);
    }
    const bool has_no_peer = must_reconnect_ && !find_in_log(mark, "Failed to connect socket").empty();
    if (rc < 0 && !has_no_peer) {
        return error.fail(-rc, "cannot %s port %s (%s): %s", failed.c_str(), name_.c_str(), driver_.c_str(),
                          reason(rc, mark).c_str());
    }
    started_ = rc == 0;
    if (started_ && setup.vlan != 0) {
        rc = rte_eth_dev_vlan_filter(id_, setup.vlan, 1);
        if (rc < 0 && rc != -ENOTSUP) {
            return error.fail(-rc, "vlan=%u: port %s (%s) does not let the tag through: %s", unsigned{setup.vlan},
                              name_.c_str(), driver_.c_str(), reason(rc, mark).c_str());
        }
        if (rc == 0) vlan_ = setup.vlan;
    }
    free_left_pools(id_);
    abilities_ = setup.abilities;
    abilities_.rx_descriptors =
        static_cast<std::uint16_t>(std::min<std::uint32_t>(abilities_.rx_descriptors, ring_packets(identity)));
    warnings_ = setup.warnings;
    if (setup.vlan != vlan_) {
        warn("port " + name_ + ": it does not let itself be set to let tag " + std::to_string(setup.vlan) +
             " through: if it filters by tag, nothing arrives");
    }
    if (!started_) warn("port " + name_ + ": memif's server is not there yet; it is looked for every second");
    rte_ether_addr mac{};
    rte_eth_macaddr_get(id_, &mac);
    std::copy(std::begin(mac.addr_bytes), std::end(mac.addr_bytes), mac_.begin());
    return 0;
}

void Port::await_link(const PortIdentity& identity, bool has_speed) {
    // A card needs a moment for its link after the start. A virtual device's follows its peer: no use waiting.
    const std::int64_t tries = has_speed && !identity.is_virtual ? link_wait_ms / 10 : 0;
    up_ = link_->is_up();
    for (std::int64_t i = 0; i < tries && !up_; ++i) {
        rte_delay_us_sleep(10'000);
        up_ = link_->is_up();
    }
    // A virtual device's link begins when its peer comes, as a rule after us: an event tells.
    if (!up_ && (asks_kernel_of_link(driver_) || !identity.is_virtual)) warn("port " + name_ + " has no link");
}

void Port::find_interrupts() {
    for (std::uint16_t queue = 0; queue < abilities_.queues; ++queue) {
        const int descriptor = rte_eth_dev_rx_intr_ctl_q_get_fd(id_, queue);
        if (descriptor < 0 || rte_eth_dev_rx_intr_enable(id_, queue) != 0) return;
        rte_eth_dev_rx_intr_disable(id_, queue);
        interrupt_descriptors_[queue] = descriptor;
        interrupts_need_reading_[queue] = is_eventfd(descriptor);
    }
    abilities_.has_rx_interrupt = true;
}

std::uint64_t Port::rx_dropped() const {
    if (link_->state() == DeviceState::usable) {
        const std::uint64_t dropped = device_drops(id_);
        rx_dropped_last_ = dropped > rx_dropped_before_ ? dropped - rx_dropped_before_ : 0;
    }
    return rx_dropped_last_;
}

void Port::append_statistics(std::vector<dlcp_io_statistic>& out) const {
    if (link_->state() != DeviceState::usable) return;
    append_port_statistics(id_, extended_names_, out);
}

int Port::interrupt_descriptor(std::uint16_t queue) const {
    return queue < interrupt_descriptors_.size() && abilities_.has_rx_interrupt ? interrupt_descriptors_[queue]
                                                                                : -1;
}

void Port::arm(std::uint16_t queue) const {
    if (started()) rte_eth_dev_rx_intr_enable(id_, queue);
}

void Port::disarm(std::uint16_t queue) const {
    if (started()) rte_eth_dev_rx_intr_disable(id_, queue);
    // Of a device that is gone as well: it is our descriptor until the port is closed, and would end every wait.
    std::uint64_t count;
    if (interrupts_need_reading_[queue]) (void)!::read(interrupt_descriptors_[queue], &count, sizeof count);
}

}  // namespace dlcp::dpdk

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

constexpr std::uint16_t descriptors = 1024;
// Buffers beyond what the queues hold: bursts under way, what the engine has lent, packets that wait for a neighbour,
// and what lies in the caches of threads.
constexpr std::uint32_t spare_buffers = 1024 + 512;
constexpr std::int64_t link_wait_ms = 2000;
constexpr std::int64_t reconnect_interval_ns = 1'000'000'000;
constexpr std::int64_t memif_connects_ms = 20;

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
    can.rx_descriptors = can.tx_descriptors = descriptors;
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
        return error.fail(EBUSY, "port %s is in use by another transport of this process: close that one first",
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
        return setup.abilities.queues * std::uint32_t{std::max(descriptors, least)} + spare_buffers;
    };
    PoolSize size{.buffers = buffers(rx_descriptors_min),
                  .data_room_bytes = setup.data_room_bytes,
                  .numa_node = rte_eth_dev_socket_id(id_)};
    if (const int rc = take_pool(id_, PoolUse::receive, size, receive_pool_, error); rc < 0) return rc;
    size.buffers = buffers(tx_descriptors_min);
    return take_pool(id_, PoolUse::transmit, size, transmit_pool_, error);
}

// `mark`: of the log, before what is told if this fails.
int Port::start(PortSetup& setup, const PortIdentity& identity, std::uint64_t mark, ErrorText error) {
    std::string failed;
    int rc = start_port(id_, setup, receive_pool_, failed);
    if (rc < 0 && setup.conf.intr_conf.rxq != 0) {
        // Not every driver has interrupts of receive queues, and there is no asking.
        setup.conf.intr_conf.rxq = 0;
        rc = start_port(id_, setup, receive_pool_, failed);
    }
    must_reconnect_ = driver_ == "net_memif" && identity.arguments.find("role=server") == std::string::npos &&
                      identity.arguments.find("role=master") == std::string::npos;
    const bool has_no_peer = must_reconnect_ && !find_in_log(mark, "Failed to connect socket").empty();
    if (rc < 0 && !has_no_peer) {
        return error.fail(-rc, "cannot %s port %s (%s): %s", failed.c_str(), name_.c_str(), driver_.c_str(),
                          reason(rc, mark).c_str());
    }
    started_ = rc == 0;
    free_left_pools(id_);
    abilities_ = setup.abilities;
    abilities_.rx_descriptors =
        static_cast<std::uint16_t>(std::min<std::uint32_t>(abilities_.rx_descriptors, ring_packets(identity)));
    warnings_ = setup.warnings;
    if (!started_) warn("port " + name_ + ": memif's server is not there yet; it is looked for every second");
    rte_ether_addr mac{};
    rte_eth_macaddr_get(id_, &mac);
    std::copy(std::begin(mac.addr_bytes), std::end(mac.addr_bytes), mac_.begin());
    return 0;
}

void Port::await_link(const PortIdentity& identity, bool has_speed) {
    const bool asks_kernel = driver_ == "net_af_packet" || driver_ == "net_af_xdp";
    link_ = std::make_unique<LinkWatch>(id_, asks_kernel ? identity.interface_name : std::string());
    // A card needs a moment for its link after the start. A virtual device's follows its peer: no use waiting.
    const std::int64_t tries = has_speed && !identity.is_virtual ? link_wait_ms / 10 : 0;
    up_ = link_->is_up();
    for (std::int64_t i = 0; i < tries && !up_; ++i) {
        rte_delay_us_sleep(10'000);
        up_ = link_->is_up();
    }
    // A virtual device's link begins when its peer comes, as a rule after us: an event tells.
    if (!up_ && (asks_kernel || !identity.is_virtual)) warn("port " + name_ + " has no link");
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

Port::~Port() {
    link_.reset();
    if (started_) {
        if (hears_everything_) rte_eth_promiscuous_disable(id_);
        if (hears_all_multicast_) rte_eth_allmulticast_disable(id_);
        stop();
    }
    if (isolates_flows_) share_flows(id_);
    if (claimed_) release_port(id_);
}

int Port::listen_to(std::span<const ipstack::MacAddress> groups, ErrorText error) {
    if (groups.empty()) return 0;
    const std::uint64_t mark = log_mark();
    std::vector<rte_ether_addr> list(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
        std::copy(groups[i].begin(), groups[i].end(), std::begin(list[i].addr_bytes));
    }
    if (rte_eth_dev_set_mc_addr_list(id_, list.data(), static_cast<std::uint32_t>(list.size())) == 0) return 0;
    if (rte_eth_allmulticast_enable(id_) == 0) {
        hears_all_multicast_ = true;
        return 0;
    }
    const int rc = rte_eth_promiscuous_enable(id_);
    if (rc == 0) {
        hears_everything_ = true;
        return 0;
    }
    // A virtual device that has no such switch filters nothing.
    if (identify(id_).is_virtual && rc == -ENOTSUP) return 0;
    return error.fail(-rc, "port %s hears no multicast, which IPv6's neighbour discovery needs: %s", name_.c_str(),
                      reason(rc, mark).c_str());
}

void Port::watch_link(std::int64_t now_ns, DriverEvents& events) {
    if (gone_ || now_ns - link_checked_ns_ < link_check_ns) return;
    link_checked_ns_ = now_ns;
    const auto tell = [&](std::uint32_t kind, const char* what) {
        events.tell(now_ns, kind, "port %s %s", name_.c_str(), what);
    };
    if (link_->is_gone()) {
        gone_ = true;
        up_ = false;
        tell(DLCP_IO_DEVICE_GONE, "was taken away, or its driver gave it up");
        return;
    }
    const bool now_up = link_->is_up();
    if (!now_up && must_reconnect_) reconnect(now_ns);
    if (now_up == up_) return;
    up_ = now_up;
    tell(now_up ? DLCP_IO_LINK_UP : DLCP_IO_LINK_DOWN, now_up ? "has a link" : "has lost its link");
}

void Port::stop() {
    if (driver_ != "net_memif") {
        rte_eth_dev_stop(id_);
        return;
    }
    // A server that accepts a connection whose client has gone already closes it and watches it on, which ends its
    // process (22.11, memif_listener_handler): one that was begun just now is let become one.
    const LinkWatch link(id_, {});
    for (std::int64_t waited_ms = 0; waited_ms < memif_connects_ms && !link.is_up(); ++waited_ms) {
        const auto alone = lock_memif();
        let_interrupts_pass();
        rte_delay_us_sleep(1000);
    }
    on_interrupt_thread(rte_eth_dev_stop, id_);
}

void Port::reconnect(std::int64_t now_ns) {
    if (reconnected_ns_ == 0) reconnected_ns_ = now_ns;
    if (now_ns - reconnected_ns_ < reconnect_interval_ns) return;
    reconnected_ns_ = now_ns;
    if (started_) stop();
    started_ = on_interrupt_thread(rte_eth_dev_start, id_) == 0;
}

std::uint64_t Port::rx_dropped() const {
    const std::uint64_t dropped = device_drops(id_);
    return dropped > rx_dropped_before_ ? dropped - rx_dropped_before_ : 0;
}

void Port::append_statistics(std::vector<dlcp_io_statistic>& out) const {
    append_port_statistics(id_, extended_names_, out);
}

int Port::interrupt_descriptor(std::uint16_t queue) const {
    return queue < interrupt_descriptors_.size() && abilities_.has_rx_interrupt ? interrupt_descriptors_[queue]
                                                                                : -1;
}

void Port::arm(std::uint16_t queue) const { rte_eth_dev_rx_intr_enable(id_, queue); }

void Port::disarm(std::uint16_t queue) const {
    rte_eth_dev_rx_intr_disable(id_, queue);
    std::uint64_t count;
    if (interrupts_need_reading_[queue]) (void)!::read(interrupt_descriptors_[queue], &count, sizeof count);
}

}  // namespace dlcp::dpdk

// What becomes of an open port: its link, its device, the frames it hears, its end.
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_mempool.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/dpdk/eal_log.hpp"
#include "io/dpdk/interrupt_thread.hpp"
#include "io/dpdk/port.hpp"
#include "io/dpdk/port_find.hpp"
#include "io/dpdk/port_flow.hpp"

namespace dlcp::dpdk {
namespace {

constexpr std::int64_t reconnect_interval_ns = 1'000'000'000;
constexpr std::int64_t memif_connects_ms = 20;
// A firmware's reset takes seconds at most; a driver that has not ended it by then is stopped all the same.
constexpr std::int64_t recovery_ms = 5000;

// nullptr: it may come back.
const char* end_of(DeviceState state) {
    switch (state) {
        case DeviceState::usable:
        case DeviceState::recovering: return nullptr;
        case DeviceState::failed: return "has failed: its driver could not mend an error of the device";
        case DeviceState::removed: return "was taken away, or its driver gave it up";
        case DeviceState::interface_removed: return "was taken away: the kernel's interface below it is gone";
        case DeviceState::needs_reset: return "was reset by its physical function: open the endpoint anew";
    }
    return nullptr;
}

}  // namespace

int Port::listen_to(std::span<const ipstack::MacAddress> groups, ErrorText error) {
    if (groups.empty()) return 0;
    groups_.assign(groups.begin(), groups.end());
    const std::uint64_t mark = log_mark();
    const int rc = hear_groups();
    if (rc == 0) return 0;
    if (rc == -ENOTSUP) {
        // A virtual device that has no such switch filters nothing. Of cards, gve and ena have none.
        if (!identify(id_).is_virtual) {
            warn("port " + name_ + " (" + driver_ +
                 ") cannot be set to receive multicast: unless it does so by itself, neighbour discovery goes "
                 "unanswered, and "
                 "each end has to name the other with neighbour=ADDRESS@MAC");
        }
        return 0;
    }
    const std::string log = last_complaints(mark, 2);
    return error.fail(-rc, "port %s hears no multicast, which IPv6's neighbour discovery needs: %s%s%s",
                      name_.c_str(), std::strerror(-rc), log.empty() ? "" : "; DPDK's log: ", log.c_str());
}

int Port::hear_groups() {
    std::vector<rte_ether_addr> list(groups_.size());
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        std::copy(groups_[i].begin(), groups_[i].end(), std::begin(list[i].addr_bytes));
    }
    if (rte_eth_dev_set_mc_addr_list(id_, list.data(), static_cast<std::uint32_t>(list.size())) == 0) return 0;
    if (rte_eth_allmulticast_enable(id_) == 0) {
        hears_all_multicast_ = true;
        return 0;
    }
    const int rc = rte_eth_promiscuous_enable(id_);
    hears_everything_ = rc == 0;
    return rc;
}

void Port::watch_link(std::int64_t now_ns, DriverEvents& events) {
    if (now_ns - link_checked_ns_ < link_check_ns) return;
    link_checked_ns_ = now_ns;
    if (!watch_device(now_ns, events)) return;
    const bool now_up = link_->is_up();
    if (!now_up && must_reconnect_) reconnect(now_ns);
    if (now_up == up_) return;
    up_ = now_up;
    events.add(now_ns, now_up ? DLCP_IO_LINK_UP : DLCP_IO_LINK_DOWN, "port %s %s", name_.c_str(),
               now_up ? "has a link" : "has lost its link");
}

void Port::watch_buffers(std::int64_t now_ns, DriverEvents& events) {
    if (!started() || (buffers_checked_ns_ != 0 && now_ns - buffers_checked_ns_ < buffers_check_ns)) return;
    const bool first = buffers_checked_ns_ == 0;
    buffers_checked_ns_ = now_ns;
    rte_eth_stats stats{};
    if (rte_eth_stats_get(id_, &stats) != 0) return;
    // Not every driver counts them (net_memif does not): there an empty pool says it.
    const bool none_free =
        (!first && stats.rx_nombuf > rx_no_buffer_) || rte_mempool_avail_count(receive_pool_) == 0;
    rx_no_buffer_ = stats.rx_nombuf;
    if (none_free && !told_of_no_buffers_) {
        events.add(now_ns, DLCP_IO_NO_BUFFERS, "port %s: no packet buffer for receiving is free: frames are lost",
                   name_.c_str());
    }
    told_of_no_buffers_ = none_free;
}

// True: there is a device, whose link may be asked for.
bool Port::watch_device(std::int64_t now_ns, DriverEvents& events) {
    const DeviceState before = device_;
    device_ = link_->look();
    if (device_ == DeviceState::usable) {
        // Of what we configured, the list of groups alone is not retained (rte_ethdev.h, RTE_ETH_EVENT_RECOVERY_SUCCESS).
        if (link_->take_recovered() && !groups_.empty()) hear_groups();
        return true;
    }
    if (device_ == before) return false;
    const bool was_up = up_;
    up_ = false;
    if (const char* const end = end_of(device_)) {
        events.add(now_ns, DLCP_IO_DEVICE_GONE, "port %s %s", name_.c_str(), end);
    } else if (was_up) {
        events.add(now_ns, DLCP_IO_LINK_DOWN, "port %s has lost its link: its driver mends an error of the device",
                   name_.c_str());
    }
    return false;
}

void Port::reconnect(std::int64_t now_ns) {
    if (reconnected_ns_ == 0) reconnected_ns_ = now_ns;
    if (now_ns - reconnected_ns_ < reconnect_interval_ns) return;
    reconnected_ns_ = now_ns;
    if (started_) stop();
    started_ = on_interrupt_thread(rte_eth_dev_start, id_) == 0;
}

void Port::stop() {
    if (driver_ != "net_memif") {
        rte_eth_dev_stop(id_);
        return;
    }
    // A server that accepts a connection whose client has gone already closes it and watches it on, which ends its
    // process (22.11, memif_listener_handler): one that was begun just now is let become one.
    for (std::int64_t waited_ms = 0; waited_ms < memif_connects_ms && !has_link(id_); ++waited_ms) {
        const auto alone = lock_memif();
        let_interrupts_pass();
        rte_delay_us_sleep(1000);
    }
    on_interrupt_thread(rte_eth_dev_stop, id_);
}

// Of a port that was started.
void Port::let_go() {
    for (std::int64_t waited_ms = 0; waited_ms < recovery_ms && link_->state() == DeviceState::recovering;
         ++waited_ms)
        rte_delay_us_sleep(1000);
    const DeviceState state = link_->state();
    if (!rte_eth_dev_is_valid_port(id_)) return;  // somebody has closed it
    if (state == DeviceState::usable) {
        if (vlan_ != 0) rte_eth_dev_vlan_filter(id_, vlan_, 0);
        if (hears_everything_) rte_eth_promiscuous_disable(id_);
        if (hears_all_multicast_) rte_eth_allmulticast_disable(id_);
    }
    stop();
    // As the events ask for (rte_ethdev.h): what was reset is configured anew, of a device that is gone nothing is left.
    if (state == DeviceState::needs_reset) {
        rte_eth_dev_reset(id_);
    } else if (end_of(state) != nullptr) {
        rte_eth_dev_close(id_);
    }
}

Port::~Port() {
    if (started_) let_go();
    if (isolates_flows_ && rte_eth_dev_is_valid_port(id_)) share_flows(id_);
    link_.reset();
    if (claimed_) release_port(id_);
}

}  // namespace dlcp::dpdk

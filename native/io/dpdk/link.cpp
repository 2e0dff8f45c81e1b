// Registers for device events and asks driver and kernel for the link.
#include "io/dpdk/link.hpp"

#include <net/if.h>
#include <rte_ethdev.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>

namespace dlcp::dpdk {
namespace {

// By port; static, since DPDK calls back on a thread of its own that nothing here waits for.
std::array<std::atomic<DeviceState>, RTE_MAX_ETHPORTS> states{};
std::array<std::atomic<std::uint32_t>, RTE_MAX_ETHPORTS> recoveries{};

// The arrows of link.hpp.
void change(std::atomic<DeviceState>& state, DeviceState to) {
    DeviceState from = state.load();
    while (from == DeviceState::usable || from == DeviceState::recovering)
        if (state.compare_exchange_weak(from, to)) return;
}

struct DeviceEvent {
    rte_eth_event_type event;
    DeviceState state;
};

// What DPDK's guide says of each is at enum rte_eth_event_type (rte_ethdev.h).
constexpr std::array device_events{
    DeviceEvent{RTE_ETH_EVENT_INTR_RMV, DeviceState::removed},
    DeviceEvent{RTE_ETH_EVENT_DESTROY, DeviceState::removed},
    DeviceEvent{RTE_ETH_EVENT_INTR_RESET, DeviceState::needs_reset},
    DeviceEvent{RTE_ETH_EVENT_ERR_RECOVERING, DeviceState::recovering},
    DeviceEvent{RTE_ETH_EVENT_RECOVERY_SUCCESS, DeviceState::usable},
    DeviceEvent{RTE_ETH_EVENT_RECOVERY_FAILED, DeviceState::failed},
};

int note(std::uint16_t port, rte_eth_event_type event, void*, void*) {
    if (port >= states.size()) return 0;
    if (event == RTE_ETH_EVENT_RECOVERY_SUCCESS) ++recoveries[port];  // before it is seen to be usable
    for (const DeviceEvent& one : device_events)
        if (one.event == event) change(states[port], one.state);
    return 0;
}

// The interface as the kernel names it now; none: it is not there, or in another namespace.
std::optional<ifreq> request_for(int socket, unsigned index) {
    ifreq request{};
    request.ifr_ifindex = static_cast<int>(index);
    if (::ioctl(socket, SIOCGIFNAME, &request) != 0) return std::nullopt;
    return request;
}

}  // namespace

LinkWatch::LinkWatch(std::uint16_t port, const InterfaceBelow& interface)
    : port_(port), interface_(interface), state_(states[port]), recoveries_seen_(recoveries[port]) {
    if (interface_.index != 0) socket_ = Descriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    state_ = DeviceState::usable;
    for (const DeviceEvent& one : device_events) rte_eth_dev_callback_register(port_, one.event, note, nullptr);
}

LinkWatch::~LinkWatch() {
    for (const DeviceEvent& one : device_events) rte_eth_dev_callback_unregister(port_, one.event, note, nullptr);
}

bool LinkWatch::is_up() const {
    if (!has_link(port_)) return false;
    if (!socket_ || !interface_.knows_link) return true;
    std::optional<ifreq> request = request_for(socket_.number(), interface_.index);
    return request && ::ioctl(socket_.number(), SIOCGIFFLAGS, &*request) == 0 &&
           (request->ifr_flags & IFF_UP) != 0 && (request->ifr_flags & IFF_RUNNING) != 0;
}

DeviceState LinkWatch::look() {
    if (state() != DeviceState::usable) return state();
    if (rte_eth_dev_is_removed(port_) == 1) {
        change(state_, DeviceState::removed);
    } else if (socket_ && !request_for(socket_.number(), interface_.index) && errno == ENODEV) {
        // Moved to another namespace is as good as deleted: the kernel has let go of the device's socket.
        change(state_, DeviceState::interface_removed);
    }
    return state();
}

bool LinkWatch::take_recovered() {
    const std::uint32_t seen_before = recoveries_seen_;
    recoveries_seen_ = recoveries[port_];
    return recoveries_seen_ != seen_before;
}

bool has_link(std::uint16_t port) {
    rte_eth_link link{};
    return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

}  // namespace dlcp::dpdk

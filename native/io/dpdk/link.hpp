// Whether a port has a link: as its driver says, or, for a device over an interface of the kernel whose driver always
// says yes (net_af_packet, net_af_xdp), as the kernel says. And whether there still is a device to have one.
//
//   usable <──> recovering ──> failed
//      └────────────┴────────> removed, interface_removed, needs_reset
//
// The four on the right are for good: to use the port again, open it anew.
#pragma once

#include <atomic>
#include <cstdint>

#include "io/descriptor.hpp"

namespace dlcp::dpdk {

enum class DeviceState : std::uint8_t {
    usable,
    recovering,         // its driver mends an error of the device; not to be touched meanwhile
    failed,             // and could not
    removed,            // unplugged, or given up by its driver
    interface_removed,  // the kernel's interface below a virtual device
    needs_reset,        // a virtual function, whose physical function was reset
};

// The kernel's interface below a device.
struct InterfaceBelow {
    unsigned index = 0;       // 0: none, or one that the device can do without
    bool knows_link = false;  // ask it, not the driver, about the link
};

class LinkWatch {
public:
    // One at a time per port.
    LinkWatch(std::uint16_t port, const InterfaceBelow& interface);
    ~LinkWatch();
    LinkWatch(const LinkWatch&) = delete;
    LinkWatch& operator=(const LinkWatch&) = delete;

    // Not to be asked of a device that is not usable.
    bool is_up() const;
    // As last heard or seen. DPDK tells changes on its interrupt thread; cheap enough for every burst.
    DeviceState state() const { return state_.load(std::memory_order_relaxed); }
    // Looks for what nobody tells.
    DeviceState look();
    // Its driver has mended an error of the device since this was last asked, be it between two looks.
    bool take_recovered();

private:
    const std::uint16_t port_;
    const InterfaceBelow interface_;
    std::atomic<DeviceState>& state_;
    std::uint32_t recoveries_seen_;
    Descriptor socket_;  // for asking the kernel, in the network namespace that the port was opened in
};

// As the driver says.
bool has_link(std::uint16_t port);

}  // namespace dlcp::dpdk

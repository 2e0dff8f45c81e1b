// Whether a port has a link: as its driver says, or, for a device over an interface of the kernel whose driver always
// says yes (net_af_packet, net_af_xdp), as the kernel says.
#pragma once

#include <cstdint>
#include <string>

namespace dlcp::dpdk {

class LinkWatch {
public:
    // `interface_name`: of the kernel's interface below the device; empty: the driver knows.
    LinkWatch(std::uint16_t port, const std::string& interface_name);
    ~LinkWatch();
    LinkWatch(const LinkWatch&) = delete;
    LinkWatch& operator=(const LinkWatch&) = delete;

    bool is_up() const;
    // The device was taken away since this watch began. DPDK tells it on its interrupt thread.
    bool is_gone() const;

private:
    const std::uint16_t port_;
    const std::string interface_name_;
    int socket_ = -1;  // for asking the kernel, in the network namespace of who opened the port
};

// The kernel's MTU of an interface; 0: not known.
std::uint32_t interface_mtu_bytes(const std::string& name);

}  // namespace dlcp::dpdk

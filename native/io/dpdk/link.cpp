#include "io/dpdk/link.hpp"

#include <net/if.h>
#include <rte_ethdev.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

namespace dlcp::dpdk {
namespace {

// By port; static, since DPDK calls back on a thread of its own that nothing here waits for.
std::array<std::atomic<bool>, RTE_MAX_ETHPORTS> gone{};

int note_removal(std::uint16_t port, rte_eth_event_type, void*, void*) {
    if (port < gone.size()) gone[port] = true;
    return 0;
}

int open_socket() { return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

ifreq request_for(const std::string& name) {
    ifreq request{};
    std::strncpy(request.ifr_name, name.c_str(), sizeof request.ifr_name - 1);
    return request;
}

}  // namespace

LinkWatch::LinkWatch(std::uint16_t port, const std::string& interface_name)
    : port_(port), interface_name_(interface_name) {
    if (!interface_name_.empty()) socket_ = open_socket();
    gone[port_] = false;
    rte_eth_dev_callback_register(port_, RTE_ETH_EVENT_INTR_RMV, note_removal, nullptr);
}

LinkWatch::~LinkWatch() {
    rte_eth_dev_callback_unregister(port_, RTE_ETH_EVENT_INTR_RMV, note_removal, nullptr);
    if (socket_ >= 0) ::close(socket_);
}

bool LinkWatch::is_up() const {
    rte_eth_link link{};
    if (rte_eth_link_get_nowait(port_, &link) != 0 || link.link_status != RTE_ETH_LINK_UP) return false;
    if (socket_ < 0) return true;
    ifreq request = request_for(interface_name_);
    // An interface that cannot be asked, moved to another namespace perhaps, has no link here.
    return ::ioctl(socket_, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0 &&
           (request.ifr_flags & IFF_RUNNING) != 0;
}

bool LinkWatch::is_gone() const { return gone[port_] || rte_eth_dev_is_removed(port_) == 1; }

std::uint32_t interface_mtu_bytes(const std::string& name) {
    const int socket = open_socket();
    if (socket < 0) return 0;
    ifreq request = request_for(name);
    const bool known = ::ioctl(socket, SIOCGIFMTU, &request) == 0;
    ::close(socket);
    return known && request.ifr_mtu > 0 ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

}  // namespace dlcp::dpdk

#include "softswitch/interface.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "softswitch/descriptor.hpp"
#include "softswitch/port.hpp"

namespace dlcp::softswitch {
namespace {

ifreq request_for(const std::string& name) {
    ifreq request{};
    std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    return request;
}

bool ask(unsigned long what, ifreq& request) {
    const Descriptor socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return socket_.get() >= 0 && ioctl(socket_.get(), what, &request) == 0;
}

}  // namespace

void fail_port(const std::string& name, const std::string& what, int number) {
    std::string text = "port " + name + ": " + what + ": " + std::strerror(number);
    if (number == EPERM || number == EACCES) text += "; needs root, or a network of one's own: unshare -Urnm";
    throw PortError(number, text);
}

int interface_index(const std::string& name) {
    const unsigned index = name.size() < IFNAMSIZ ? if_nametoindex(name.c_str()) : 0;
    if (index == 0) throw PortError(ENODEV, "port " + name + ": there is no such interface here");
    return static_cast<int>(index);
}

std::uint32_t interface_mtu(const std::string& name) {
    ifreq request = request_for(name);
    if (!ask(SIOCGIFMTU, request)) fail_port(name, "its MTU", errno);
    return static_cast<std::uint32_t>(request.ifr_mtu);
}

bool interface_is_ethernet(const std::string& name) {
    ifreq request = request_for(name);
    if (!ask(SIOCGIFHWADDR, request)) fail_port(name, "its kind", errno);
    return request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
}

// Its carrier, not IFF_RUNNING: that is `operstate` (RFC 2863), which the kernel brings up to date up to a second later.
bool interface_runs(int index) {
    ifreq request{};
    request.ifr_ifindex = index;
    if (!ask(SIOCGIFNAME, request) || !ask(SIOCGIFFLAGS, request) || (request.ifr_flags & IFF_UP) == 0)
        return false;
    const bool running = (request.ifr_flags & IFF_RUNNING) != 0;
    ethtool_value carrier{};
    carrier.cmd = ETHTOOL_GLINK;
    request.ifr_data = reinterpret_cast<char*>(&carrier);  // in one union with the flags
    return ask(SIOCETHTOOL, request) ? carrier.data != 0 : running;
}

void bring_interface_up(const std::string& name) {
    ifreq request = request_for(name);
    if (!ask(SIOCGIFFLAGS, request)) fail_port(name, "its flags", errno);
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
    if (!ask(SIOCSIFFLAGS, request)) fail_port(name, "bringing it up", errno);
}

}  // namespace dlcp::softswitch

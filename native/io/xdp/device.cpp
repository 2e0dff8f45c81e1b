#include "io/xdp/device.hpp"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

#include "io/clock.hpp"
#include "io/udp_address.hpp"
#include "io/xdp/features.hpp"

namespace dlcp::xdp {

namespace {

ifreq request_for(const std::string& name) {
    ifreq request = {};
    strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    return request;
}

// 1 for a driver that cannot tell: then it has one.
std::uint32_t queues_of(int socket, const std::string& name) {
    ethtool_channels channels = {};
    channels.cmd = ETHTOOL_GCHANNELS;
    ifreq request = request_for(name);
    request.ifr_data = reinterpret_cast<char*>(&channels);
    if (ioctl(socket, SIOCETHTOOL, &request) != 0) return 1;
    return std::max<std::uint32_t>(channels.combined_count + channels.rx_count, 1);
}

}  // namespace

int find_device(const std::string& name, Device& out, ErrorText error) {
    if (name.empty()) {
        return error.fail(ENODEV,
                          "the xdp driver needs an interface: name it (interface=NAME in the driver's options), "
                          "one of %s",
                          udp::describe(udp::list_interfaces()).c_str());
    }
    const Descriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));  // any socket answers these
    const int socket = any.number();
    if (socket < 0) return error.fail(errno, "no socket to ask about interfaces: %s", strerror(errno));
    out = {.name = name};
    ifreq request = request_for(name);
    int result = 0;
    if (name.size() >= IFNAMSIZ || ioctl(socket, SIOCGIFINDEX, &request) != 0) {
        result = error.fail(ENODEV, "this host has no interface '%s': choose one of %s", name.c_str(),
                            udp::describe(udp::list_interfaces()).c_str());
    } else {
        out.index = static_cast<unsigned>(request.ifr_ifindex);
        if (ioctl(socket, SIOCGIFHWADDR, &request) == 0) {
            out.ethernet = request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
            memcpy(out.mac.data(), request.ifr_hwaddr.sa_data, out.mac.size());
        }
        if (ioctl(socket, SIOCGIFMTU, &request) == 0) out.mtu_bytes = static_cast<std::uint32_t>(request.ifr_mtu);
        if (ioctl(socket, SIOCGIFFLAGS, &request) == 0) {
            out.up = (request.ifr_flags & IFF_UP) != 0;
            out.running = (request.ifr_flags & IFF_RUNNING) != 0;
        }
        out.queues = queues_of(socket, name);
        const std::set<std::string> features = active_features(socket, name);
        out.takes_vlan_tags = features.contains("rx-vlan-hw-parse");
        out.filters_vlans = features.contains("rx-vlan-filter");
    }
    return result;
}

LinkWatch::State LinkWatch::state_of(unsigned flags) {
    return (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0 ? State::up : State::down;
}

LinkWatch::State LinkWatch::ask() const {
    // By index, and its name anew: that which it had may be another interface's by now.
    ifreq request = {};
    request.ifr_ifindex = static_cast<int>(index_);
    if (ioctl(socket_.number(), SIOCGIFNAME, &request) != 0 ||
        ioctl(socket_.number(), SIOCGIFFLAGS, &request) != 0)
        return State::gone;
    return state_of(static_cast<unsigned short>(request.ifr_flags));
}

int LinkWatch::open(const Device& device, ErrorText error) {
    index_ = device.index;
    socket_ = Descriptor(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address = {};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (!socket_ || bind(socket_.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        return error.fail(errno, "cannot watch interface %s (rtnetlink): %s", device.name.c_str(),
                          strerror(errno));
    state_ = ask();
    return 0;
}

LinkWatch::State LinkWatch::read() {
    alignas(nlmsghdr) char buffer[16 * 1024];
    for (;;) {
        const ssize_t received = recv(socket_.number(), buffer, sizeof buffer, MSG_DONTWAIT);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && errno == ENOBUFS) {  // more news than the socket holds: some are lost
            state_ = ask();
            continue;
        }
        if (received <= 0) return state_;
        int left = static_cast<int>(received);
        for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(header, left);
             header = NLMSG_NEXT(header, left)) {
            if (header->nlmsg_type != RTM_NEWLINK && header->nlmsg_type != RTM_DELLINK) continue;
            const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(header));
            if (link->ifi_family != AF_UNSPEC || static_cast<unsigned>(link->ifi_index) != index_) continue;
            if (header->nlmsg_type == RTM_DELLINK)
                state_ = State::gone;
            else
                state_ = state_of(link->ifi_flags);
        }
    }
}

LinkWatch::State LinkWatch::await_up(std::int64_t timeout_ns) {
    constexpr std::int64_t ns_per_ms = 1'000'000;
    const std::int64_t until_ns = monotonic_ns() + timeout_ns;
    std::int64_t left_ns = timeout_ns;
    while (read() == State::down && left_ns > 0) {
        pollfd news = {socket_.number(), POLLIN, 0};
        poll(&news, 1, static_cast<int>(left_ns / ns_per_ms + 1));
        left_ns = until_ns - monotonic_ns();
    }
    return state_;
}

int GroupMembership::join(const Device& device, const ipstack::IpAddress& address,
                          std::span<const ipstack::MacAddress> groups, ErrorText error) {
    if (groups.empty()) return 0;
    member_ = Descriptor(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));  // protocol 0: hears nothing itself
    for (const ipstack::MacAddress& group : groups) {
        packet_mreq request = {};
        request.mr_ifindex = static_cast<int>(device.index);
        request.mr_type = PACKET_MR_MULTICAST;
        request.mr_alen = static_cast<unsigned short>(group.size());
        memcpy(request.mr_address, group.data(), group.size());
        if (!member_ ||
            setsockopt(member_.number(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request) != 0) {
            return error.fail(errno, "interface %s cannot hear the group %s: %s", device.name.c_str(),
                              ipstack::to_text(group).c_str(), strerror(errno));
        }
    }
    if (!address.is_v6()) return 0;
    reporter_ = Descriptor(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ipv6_mreq request = {};
    request.ipv6mr_interface = device.index;
    memcpy(&request.ipv6mr_multiaddr, ipstack::solicited_node(address).bytes.data(),
           sizeof request.ipv6mr_multiaddr);
    // Refused where the kernel has no IPv6: then nobody reports, which matters only where switches ask.
    if (reporter_) setsockopt(reporter_.number(), IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request);
    return 0;
}

}  // namespace dlcp::xdp

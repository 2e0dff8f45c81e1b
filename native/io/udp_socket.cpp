// Makes, configures and binds a socket; asks what the kernel granted.
#include "io/udp_socket.hpp"

#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

// Older C libraries lack these; the values are the kernel's (include/uapi/linux/udp.h, asm-generic/socket.h).
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

namespace dlcp::udp {

namespace {

bool set(int descriptor, int level, int name, int value) {
    return setsockopt(descriptor, level, name, &value, sizeof value) == 0;
}

// FORCE passes the sysctl limit and takes CAP_NET_ADMIN; without it the request is cut to the limit silently,
// which is why the grant is read back.
void set_buffer(int descriptor, int forced, int ordinary, std::uint32_t bytes) {
    const int value = static_cast<int>(std::min<std::uint32_t>(bytes, INT32_MAX / 2));
    if (!set(descriptor, SOL_SOCKET, forced, value)) set(descriptor, SOL_SOCKET, ordinary, value);
}

int explain_bind(int number, const dlcp_address& address, ErrorText error) {
    const std::string text = format_address(address);
    switch (number) {
        case EADDRINUSE:
            if (port_of(address) == 0) {
                return error.fail(number,
                                  "no free UDP port is left on %s: raise net.ipv4.ip_local_port_range or use "
                                  "fewer paths",
                                  format_host(address).c_str());
            }
            return error.fail(number,
                              "UDP port %s is in use: choose another port (0: any free one) or stop the "
                              "program that has it (ss -ulpn 'sport = :%u' names it)",
                              text.c_str(), static_cast<unsigned>(port_of(address)));
        case EADDRNOTAVAIL:
            return error.fail(number, "%s is not an address of this host: bind one of %s",
                              format_host(address).c_str(), describe(list_interfaces()).c_str());
        case EACCES:
            return error.fail(number,
                              "not allowed to bind %s: ports below net.ipv4.ip_unprivileged_port_start need a "
                              "privilege, choose a higher one",
                              text.c_str());
        case EINVAL:
            return error.fail(number,
                              "cannot bind %s: a link-local IPv6 address needs its interface, as in "
                              "fe80::1%%eth0",
                              text.c_str());
        default: return error.fail(number, "cannot bind %s: %s", text.c_str(), strerror(number));
    }
}

}  // namespace

int Socket::open(const dlcp_address& address, const SocketOptions& options, ErrorText error) {
    const int family = family_of(address);
    Descriptor opened(socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP));
    const int descriptor = opened.number();
    if (descriptor < 0) {
        const int number = errno;
        if (number == EMFILE || number == ENFILE) {
            return error.fail(number,
                              "no file descriptor is left for a socket: raise the limit (ulimit -n), or use "
                              "fewer paths");
        }
        if (number == EAFNOSUPPORT) {
            return error.fail(number,
                              "this host has no %s (is it switched off by sysctl or boot option?): bind an "
                              "address of the other family",
                              family == AF_INET6 ? "IPv6" : "IPv4");
        }
        return error.fail(number, "cannot make a UDP socket: %s", strerror(number));
    }

    if (!options.device.empty() && setsockopt(descriptor, SOL_SOCKET, SO_BINDTODEVICE, options.device.c_str(),
                                              static_cast<socklen_t>(options.device.size() + 1)) != 0) {
        const int number = errno;
        return error.fail(number, "cannot bind the socket to interface %s: %s", options.device.c_str(),
                          strerror(number));
    }

    // PROBE: set DF and ignore the kernel's path MTU, since the protocol finds its own (RFC 8899 section 3).
    if (family == AF_INET6) {
        set(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1);
        set(descriptor, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
        set(descriptor, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    } else {
        set(descriptor, IPPROTO_IP, IP_RECVTOS, 1);
        set(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    }
    set(descriptor, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    if (options.want_gro) set(descriptor, IPPROTO_UDP, UDP_GRO, 1);
    if (options.buffer_bytes > 0) {
        set_buffer(descriptor, SO_RCVBUFFORCE, SO_RCVBUF, options.buffer_bytes);
        set_buffer(descriptor, SO_SNDBUFFORCE, SO_SNDBUF, options.buffer_bytes);
    }

    if (bind(descriptor, to_sockaddr(address), address.length) != 0) return explain_bind(errno, address, error);
    descriptor_ = std::move(opened);
    return 0;
}

void Socket::ask_receive_buffer(std::uint32_t bytes) const {
    set_buffer(descriptor(), SO_RCVBUFFORCE, SO_RCVBUF, bytes);
}

dlcp_address Socket::local_address() const {
    sockaddr_storage storage = {};
    socklen_t length = sizeof storage;
    if (getsockname(descriptor(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
    return from_sockaddr(reinterpret_cast<const sockaddr*>(&storage));
}

int Socket::option(int level, int name) const {
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(descriptor(), level, name, &value, &length) == 0 ? value : 0;
}

std::uint32_t Socket::granted_receive_bytes() const {
    return static_cast<std::uint32_t>(option(SOL_SOCKET, SO_RCVBUF));
}
std::uint32_t Socket::granted_send_bytes() const {
    return static_cast<std::uint32_t>(option(SOL_SOCKET, SO_SNDBUF));
}
bool Socket::supports_gso() const { return set(descriptor(), IPPROTO_UDP, UDP_SEGMENT, 0); }
bool Socket::has_gro() const { return option(IPPROTO_UDP, UDP_GRO) != 0; }
int Socket::take_error() const { return option(SOL_SOCKET, SO_ERROR); }

// The counter behind SO_RXQ_OVFL, but read when asked: the control message comes only with a later packet, so
// drops at the end of a burst would stay unseen, and it costs bytes in each receive call.
std::uint64_t Socket::dropped_datagrams() const {
    std::uint32_t memory[SK_MEMINFO_VARS] = {};
    socklen_t length = sizeof memory;
    if (getsockopt(descriptor(), SOL_SOCKET, SO_MEMINFO, memory, &length) != 0) return 0;
    return memory[SK_MEMINFO_DROPS];
}

// The kernel charges each queued packet its true size, buffer and bookkeeping included. Payload held by a socket
// nobody reads, as a share of the granted bytes (udp_limit --capacity, loopback, Linux 6.18):
//
//   payload   one by one   merged, with GRO   merged by the sender, without GRO
//      1472     0.64           0.96                0.64
//      8972     0.54           0.96                0.91
//       576     0.45           0.97                0.41
//        64     0.08           0.83                0.07
//
// A third is below all but bare control packets, and still true for a network card that spends a page and a 256-byte
// sk_buff on each 1472-byte payload (1472 / 4352 = 0.338).
std::uint32_t payload_capacity_bytes(std::uint32_t granted_receive_bytes) { return granted_receive_bytes / 3; }

std::uint32_t largest_datagram_bytes(const Interface* interface, int family) {
    const std::uint32_t header_bytes = family == AF_INET6 ? 40 + 8 : 20 + 8;
    const std::uint32_t mtu_bytes = interface != nullptr && interface->mtu_bytes > 0 ? interface->mtu_bytes : 1500;
    return mtu_bytes > header_bytes ? mtu_bytes - header_bytes : 0;
}

}  // namespace dlcp::udp

// Addresses of the UDP driver: text to sockaddr and back, and which interface owns an address.
//
// A dlcp_address holds a sockaddr_in or sockaddr_in6 whose unused fields are zero, so that comparing bytes
// compares addresses. Nothing here opens a socket for traffic; only `resolve_host` may block (a name server).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/packet.h"
#include "io/error_text.hpp"

namespace dlcp::udp {

static_assert(sizeof(sockaddr_in6) <= sizeof(dlcp_address::bytes));

// AF_INET, AF_INET6, or AF_UNSPEC if `address` is neither or its length does not fit its family.
int family_of(const dlcp_address& address);
std::uint16_t port_of(const dlcp_address& address);
void set_port(dlcp_address& address, std::uint16_t port);
// 127.0.0.0/8 or ::1.
bool is_loopback(const dlcp_address& address);
// 0.0.0.0 or ::.
bool is_wildcard(const dlcp_address& address);
dlcp_address from_sockaddr(const sockaddr* address);
inline const sockaddr* to_sockaddr(const dlcp_address& address) {
    return reinterpret_cast<const sockaddr*>(address.bytes);
}

// "10.0.0.1:7000", "[::1]:7000", "[fe80::1%eth0]:7000".
std::string format_address(const dlcp_address& address);
// The same without port and brackets.
std::string format_host(const dlcp_address& address);

// All addresses of a host name or literal, port 0, IPv4 before IPv6, so that hosts whose names have both agree
// on one family. `family` AF_UNSPEC: both. 0 or a negative errno.
int resolve_host(const std::string& host, int family, std::vector<dlcp_address>& out, ErrorText error);
// "host:port" or "[host]:port" to an address of `family`.
int resolve_endpoint(const char* text, int family, dlcp_address& out, ErrorText error);

struct Interface {
    std::string name;
    std::uint32_t mtu_bytes = 0;
    bool up = false;
    bool loopback = false;
    std::vector<dlcp_address> addresses;  // port 0
};

std::vector<Interface> list_interfaces();
// "lo (127.0.0.1, ::1), eth0 (10.0.0.1)": for error sentences.
std::string describe(const std::vector<Interface>& interfaces);
// The interface that has `address`; all of 127.0.0.0/8 belongs to the loopback interface. nullptr: none.
const Interface* find_owner(const std::vector<Interface>& interfaces, const dlcp_address& address);

}  // namespace dlcp::udp

// Parsing, formatting and looking up addresses; the interfaces of this host.
#include "io/udp_address.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace dlcp::udp {

namespace {

sockaddr_in as_ipv4(const dlcp_address& address) {
    sockaddr_in out;
    memcpy(&out, address.bytes, sizeof out);
    return out;
}

sockaddr_in6 as_ipv6(const dlcp_address& address) {
    sockaddr_in6 out;
    memcpy(&out, address.bytes, sizeof out);
    return out;
}

template <class Sockaddr>
dlcp_address wrap(const Sockaddr& sockaddr) {
    dlcp_address out = {};
    memcpy(out.bytes, &sockaddr, sizeof sockaddr);
    out.length = sizeof sockaddr;
    return out;
}

const char* family_name(int family) { return family == AF_INET6 ? "IPv6" : "IPv4"; }

std::uint32_t mtu_of(int socket, const char* name) {
    ifreq request = {};
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    return ioctl(socket, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0
               ? static_cast<std::uint32_t>(request.ifr_mtu)
               : 0;
}

}  // namespace

int family_of(const dlcp_address& address) {
    sa_family_t family;
    memcpy(&family, address.bytes + offsetof(sockaddr, sa_family), sizeof family);
    if (family == AF_INET && address.length == sizeof(sockaddr_in)) return AF_INET;
    if (family == AF_INET6 && address.length == sizeof(sockaddr_in6)) return AF_INET6;
    return AF_UNSPEC;
}

std::uint16_t port_of(const dlcp_address& address) {
    switch (family_of(address)) {
        case AF_INET: return ntohs(as_ipv4(address).sin_port);
        case AF_INET6: return ntohs(as_ipv6(address).sin6_port);
        default: return 0;
    }
}

void set_port(dlcp_address& address, std::uint16_t port) {
    // Both families keep the port at the same place.
    static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
    const std::uint16_t network_order = htons(port);
    memcpy(address.bytes + offsetof(sockaddr_in, sin_port), &network_order, sizeof network_order);
}

bool is_loopback(const dlcp_address& address) {
    if (family_of(address) == AF_INET) return ntohl(as_ipv4(address).sin_addr.s_addr) >> 24 == 127;
    if (family_of(address) != AF_INET6) return false;
    const sockaddr_in6 ipv6 = as_ipv6(address);
    return IN6_IS_ADDR_LOOPBACK(&ipv6.sin6_addr);
}

bool is_wildcard(const dlcp_address& address) {
    if (family_of(address) == AF_INET) return as_ipv4(address).sin_addr.s_addr == htonl(INADDR_ANY);
    if (family_of(address) != AF_INET6) return false;
    const sockaddr_in6 ipv6 = as_ipv6(address);
    return IN6_IS_ADDR_UNSPECIFIED(&ipv6.sin6_addr);
}

dlcp_address from_sockaddr(const sockaddr* address) {
    if (address->sa_family == AF_INET) {
        sockaddr_in given;
        memcpy(&given, address, sizeof given);
        sockaddr_in clean = {};
        clean.sin_family = AF_INET;
        clean.sin_port = given.sin_port;
        clean.sin_addr = given.sin_addr;
        return wrap(clean);
    }
    if (address->sa_family == AF_INET6) {
        sockaddr_in6 clean;
        memcpy(&clean, address, sizeof clean);
        clean.sin6_flowinfo = 0;
        return wrap(clean);
    }
    return {};
}

std::string format_host(const dlcp_address& address) {
    char host[INET6_ADDRSTRLEN] = "";
    if (family_of(address) == AF_INET) {
        const sockaddr_in ipv4 = as_ipv4(address);
        inet_ntop(AF_INET, &ipv4.sin_addr, host, sizeof host);
        return host;
    }
    if (family_of(address) == AF_INET6) {
        const sockaddr_in6 ipv6 = as_ipv6(address);
        inet_ntop(AF_INET6, &ipv6.sin6_addr, host, sizeof host);
        std::string text = host;
        if (ipv6.sin6_scope_id != 0) {
            char name[IF_NAMESIZE];
            text += '%';
            text +=
                if_indextoname(ipv6.sin6_scope_id, name) ? std::string(name) : std::to_string(ipv6.sin6_scope_id);
        }
        return text;
    }
    return "(no address)";
}

std::string format_address(const dlcp_address& address) {
    switch (family_of(address)) {
        case AF_INET: return format_host(address) + ":" + std::to_string(port_of(address));
        case AF_INET6: return "[" + format_host(address) + "]:" + std::to_string(port_of(address));
        default: return "(no address)";
    }
}

int resolve_host(const std::string& host, int family, std::vector<dlcp_address>& out, ErrorText error) {
    addrinfo hints = {};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    const int result = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (result != 0) {
        const int number = result == EAI_SYSTEM ? errno : result == EAI_AGAIN ? EAGAIN : ENOENT;
        if (family != AF_UNSPEC && (result == EAI_ADDRFAMILY || result == EAI_NONAME || result == EAI_NODATA)) {
            return error.fail(number,
                              "'%s' has no %s address (%s), and this endpoint is bound to an %s address: "
                              "check the name, or bind and name all endpoints in one family",
                              host.c_str(), family_name(family), gai_strerror(result), family_name(family));
        }
        return error.fail(number,
                          "'%s' is no address and no host name that can be looked up (%s): write an "
                          "address such as 10.0.0.1, or add the name to DNS or /etc/hosts",
                          host.c_str(), gai_strerror(result));
    }
    out.clear();
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
        const dlcp_address address = from_sockaddr(entry->ai_addr);
        if (address.length != 0) out.push_back(address);
    }
    freeaddrinfo(found);
    std::stable_partition(out.begin(), out.end(),
                          [](const dlcp_address& address) { return family_of(address) == AF_INET; });
    if (out.empty()) return error.fail(ENOENT, "'%s' has neither an IPv4 nor an IPv6 address", host.c_str());
    return 0;
}

int resolve_endpoint(const char* text, int family, dlcp_address& out, ErrorText error) {
    const std::string given = text == nullptr ? "" : text;
    const char* const form = "write host:port, such as 10.0.0.1:7000 or [::1]:7000";
    std::string host;
    std::string port_text;
    if (!given.empty() && given.front() == '[') {
        const std::size_t end = given.find("]:");
        if (end == std::string::npos) return error.fail(EINVAL, "'%s' has no ']:port': %s", given.c_str(), form);
        host = given.substr(1, end - 1);
        port_text = given.substr(end + 2);
    } else {
        const std::size_t colon = given.rfind(':');
        if (colon == std::string::npos) return error.fail(EINVAL, "'%s' has no port: %s", given.c_str(), form);
        if (given.find(':') != colon) {
            return error.fail(EINVAL, "'%s' looks like an IPv6 address without brackets: %s", given.c_str(), form);
        }
        host = given.substr(0, colon);
        port_text = given.substr(colon + 1);
    }
    if (host.empty()) return error.fail(EINVAL, "'%s' has no host: %s", given.c_str(), form);
    unsigned port = 0;
    const char* const port_end = port_text.data() + port_text.size();
    const auto parsed = std::from_chars(port_text.data(), port_end, port);
    if (parsed.ec != std::errc() || parsed.ptr != port_end || port < 1 || port > 65535) {
        return error.fail(EINVAL, "'%s': port '%s' is not a number from 1 to 65535", given.c_str(),
                          port_text.c_str());
    }
    std::vector<dlcp_address> addresses;
    if (const int result = resolve_host(host, family, addresses, error); result < 0) return result;
    out = addresses.front();
    set_port(out, static_cast<std::uint16_t>(port));
    return 0;
}

std::vector<Interface> list_interfaces() {
    std::vector<Interface> out;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return out;
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);  // any socket answers SIOCGIFMTU
    for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
        auto known = std::find_if(out.begin(), out.end(),
                                  [&](const Interface& interface) { return interface.name == entry->ifa_name; });
        if (known == out.end()) {
            out.push_back({.name = entry->ifa_name,
                           .mtu_bytes = mtu_of(socket, entry->ifa_name),
                           .up = (entry->ifa_flags & IFF_UP) != 0,
                           .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                           .addresses = {}});
            known = out.end() - 1;
        }
        if (entry->ifa_addr == nullptr) continue;
        const dlcp_address address = from_sockaddr(entry->ifa_addr);
        if (address.length != 0) known->addresses.push_back(address);
    }
    if (socket >= 0) close(socket);
    freeifaddrs(all);
    return out;
}

std::string describe(const std::vector<Interface>& interfaces) {
    std::string text;
    for (const Interface& interface : interfaces) {
        if (!text.empty()) text += ", ";
        text += interface.name;
        if (!interface.up) text += " (down)";
        for (std::size_t i = 0; i < interface.addresses.size(); ++i) {
            text += (i == 0 ? " (" : ", ") + format_host(interface.addresses[i]);
        }
        if (!interface.addresses.empty()) text += ')';
    }
    return text.empty() ? "none" : text;
}

const Interface* find_owner(const std::vector<Interface>& interfaces, const dlcp_address& address) {
    for (const Interface& interface : interfaces) {
        for (dlcp_address own : interface.addresses) {
            set_port(own, port_of(address));
            if (own.length == address.length && memcmp(own.bytes, address.bytes, sizeof own.bytes) == 0) {
                return &interface;
            }
        }
    }
    if (!is_loopback(address)) return nullptr;
    for (const Interface& interface : interfaces) {
        if (interface.loopback) return &interface;
    }
    return nullptr;
}

}  // namespace dlcp::udp

#include "io/dpdk/address_pairs.hpp"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>

#include "io/driver_config.hpp"
#include "io/udp_address.hpp"

namespace dlcp::dpdk {

using ipstack::UdpAddress;

std::size_t AddressPairs::Hash::operator()(const dlcp_address& address) const {
    // Family and port are in the first four bytes, an IPv4 address in the next, an IPv6 one in bytes 8 to 24.
    std::uint64_t parts[3];
    memcpy(parts, address.bytes, sizeof parts);
    std::uint64_t mixed = parts[0] ^ (parts[1] * 0x9e3779b97f4a7c15u) ^ (parts[2] * 0xc2b2ae3d27d4eb4fu);
    mixed *= 0xff51afd7ed558ccdu;
    return mixed ^ mixed >> 32;
}

bool AddressPairs::Equal::operator()(const dlcp_address& a, const dlcp_address& b) const {
    return a.length == b.length && memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

// All pairs of port and address that are on one link; for an address that is on none, the ports with a gateway. A port
// without a prefix says nothing about who is on its link: the n-th one of a family is then for the peer's n-th address of
// that family.
std::vector<AddressPair> AddressPairs::pairs_to(Time now, std::span<const UdpAddress> addresses) {
    std::vector<AddressPair> pairs;
    for (std::size_t k = 0; k < addresses.size(); ++k) {
        const unsigned bits = addresses[k].ip.bits;
        const auto nth = static_cast<std::size_t>(
            std::count_if(addresses.begin(), addresses.begin() + static_cast<std::ptrdiff_t>(k),
                          [bits](const UdpAddress& before) { return before.ip.bits == bits; }));
        const std::size_t ports = ports_of_family(bits);
        bool on_link = false;
        for (const bool by_gateway : {false, true}) {
            if (by_gateway && on_link) break;
            std::size_t port = 0;  // of this family
            for (std::size_t j = 0; j < uplinks_.size(); ++j) {
                const ipstack::InterfaceConfig& config = uplinks_[j].interface->config();
                if (config.address.bits != bits) continue;
                const std::size_t here = port++;
                const bool linked = config.prefix_bits == 0
                                        ? here == nth % ports
                                        : ipstack::in_prefix(addresses[k].ip, config.address, config.prefix_bits);
                if (linked == by_gateway || (by_gateway && !config.gateway.present())) continue;
                const ipstack::Destination* destination = uplinks_[j].interface->reach(now, addresses[k]);
                if (destination == nullptr) continue;
                pairs.push_back({.uplink = static_cast<std::uint16_t>(j), .destination = destination});
                on_link |= !by_gateway;
            }
        }
    }
    for (AddressPair& pair : pairs) pair.count = static_cast<std::uint16_t>(pairs.size());
    return pairs;
}

std::size_t AddressPairs::ports_of_family(unsigned address_bits) const {
    return static_cast<std::size_t>(std::count_if(uplinks_.begin(), uplinks_.end(), [&](const Uplink& uplink) {
        return uplink.interface->config().address.bits == address_bits;
    }));
}

int AddressPairs::refuse(const std::string& text, const UdpAddress& address, ErrorText error) const {
    std::string ports;
    for (const Uplink& uplink : uplinks_) {
        const ipstack::InterfaceConfig& config = uplink.interface->config();
        if (config.address == address.ip) {
            return error.fail(EHOSTUNREACH,
                              "%s is the address of our own port %s: give each rank's port another (bind_host)",
                              to_text(address.ip).c_str(), uplink.port->name().c_str());
        }
        if (!ports.empty()) ports += ", ";
        ports += "port " + uplink.port->name() + " has " + to_text(config.address);
        if (config.prefix_bits != 0) ports += "/" + std::to_string(config.prefix_bits);
        ports += config.gateway.present() ? " and gateway " + to_text(config.gateway) : " and no gateway";
    }
    return error.fail(
        EHOSTUNREACH,
        "%s cannot be reached as '%s': %s; name a gateway (gateway=ADDRESS), or an address that is on "
        "the link",
        to_text(address.ip).c_str(), text.c_str(), ports.c_str());
}

int AddressPairs::resolve(Time now, const char* text, dlcp_address& out, ErrorText error) {
    const std::string_view given = text;
    // Of a name, the address that a port can reach.
    const bool has_v4 = ports_of_family(32) > 0, has_v6 = ports_of_family(128) > 0;
    const int family = has_v4 && has_v6 ? AF_UNSPEC : has_v6 ? AF_INET6 : AF_INET;
    const std::string own(given.substr(0, given.find('+')));
    dlcp_address address{};
    if (const int result = udp::resolve_endpoint(own.c_str(), family, address, error); result < 0) return result;
    std::vector<UdpAddress> addresses{ipstack::from_dlcp(address)};
    for (std::size_t at = given.find(separator); at != std::string_view::npos; at = given.find(separator, at)) {
        at += separator.size();
        const std::string further(given.substr(at, given.find('+', at) - at));
        dlcp_address more{};
        // Of a family that we have no port of, perhaps: it makes no pair.
        if (const int result = udp::resolve_endpoint(further.c_str(), AF_UNSPEC, more, error); result < 0)
            return result;
        addresses.push_back(ipstack::from_dlcp(more));
    }
    // Multicast, broadcast and 0.0.0.0 have no neighbour to ask.
    if (is_multicast(addresses.front().ip) || is_unspecified(addresses.front().ip))
        return error.fail(EINVAL, "'%s' is not the address of one host", text);
    std::vector<AddressPair> pairs = pairs_to(now, addresses);
    if (pairs.empty()) return refuse(own, addresses.front(), error);
    if (!has_room() && !peers_.contains(address))
        return error.fail(ENOSPC, "'%s' would be one peer too many: more than %zu are not kept", text, peers_max);
    // One that was named before may be known by others of its addresses too: they have its new pairs as well.
    const auto named = named_.find(ipstack::to_dlcp({addresses.front().ip, 0}));
    const bool again = named != named_.end() && named->second.port == addresses.front().port;
    const auto shared = again ? named->second.pairs : std::make_shared<std::vector<AddressPair>>();
    *shared = std::move(pairs);
    peers_[address] = shared;
    if (addresses.size() > 1) {
        for (const UdpAddress& each : addresses) named_[ipstack::to_dlcp({each.ip, 0})] = {each.port, shared};
        std::erase_if(heard_, [&](const dlcp_address& heard) {
            const auto found = named_pairs(ipstack::from_dlcp(heard));
            if (found != nullptr) peers_[heard] = found;
            return found != nullptr;
        });
    }
    out = address;
    return 0;
}

std::shared_ptr<std::vector<AddressPair>> AddressPairs::named_pairs(const UdpAddress& address) const {
    const auto found = named_.find(ipstack::to_dlcp({address.ip, 0}));
    const bool known = found != named_.end() && ipstack::is_path_port(address.port, found->second.port, paths_max);
    return known ? found->second.pairs : nullptr;
}

AddressPair* AddressPairs::find(Time now, const dlcp_address& peer, std::uint16_t path) {
    auto found = peers_.find(peer);
    if (found == peers_.end()) {
        if (!has_room()) return nullptr;
        const UdpAddress address = ipstack::from_dlcp(peer);
        if (!address.ip.present() || address.port == 0) return nullptr;
        auto pairs = named_pairs(address);
        if (pairs == nullptr) {
            pairs = std::make_shared<std::vector<AddressPair>>(pairs_to(now, std::span(&address, 1)));
            if (pairs->empty()) return nullptr;
            heard_.push_back(peer);
        }
        found = peers_.emplace(peer, std::move(pairs)).first;
    }
    std::vector<AddressPair>& pairs = *found->second;
    return &pairs[path % pairs.size()];
}

}  // namespace dlcp::dpdk

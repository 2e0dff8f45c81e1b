// How peers are reached: a way is one of our ports and one of the peer's addresses.
//
// A peer is known by its first address. Path i takes way i mod ways, so that paths are spread over all ports of both
// sides. A peer that spoke first, and was never named with all its addresses, is known by the one that it sent from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/units.hpp"
#include "io/dpdk/port.hpp"
#include "ipstack/interface.hpp"

namespace dlcp::dpdk {

// A port and the IP interface on it.
struct Uplink {
    std::unique_ptr<Port> port;
    std::unique_ptr<ipstack::Interface> interface;
    ipstack::Checksums checksums = ipstack::Checksums::software;
    bool gathers = false;           // payload is linked to a frame, not copied into it
    bool probing = false;           // it would be, if the device turns out to have read it when its burst returns
    std::int64_t probe_due_ns = 0;  // when that may be tried next
    bool was_up = true;             // as its interface knows it
    std::uint64_t resolutions_seen = 0;  // Interface::resolutions() when waiting packets were last looked at
};

struct Way {
    std::uint16_t uplink = 0;
    const ipstack::Destination* destination = nullptr;
    std::uint16_t count = 1;  // of the ways to this peer: path i is the (i / count)-th of its way
    std::uint64_t burst = 0;  // the last one that used it
};

class Ways {
public:
    static constexpr std::size_t peers_max = ipstack::Interface::destinations_max;
    static constexpr std::string_view word = "+dpdk:";  // before a further address

    // `uplinks` must outlive this and stay where they are.
    explicit Ways(std::span<Uplink> uplinks) : uplinks_(uplinks) {}

    // "10.0.0.1:7000+dpdk:10.1.0.1:7000", names too. Asks for the Ethernet addresses at once.
    int resolve(Time now, const char* text, dlcp_address& out, ErrorText error);
    // The way of a path to a peer. nullptr: cannot be reached, or there are peers_max already.
    Way* find(Time now, const dlcp_address& peer, std::uint16_t path);

private:
    struct Hash {
        std::size_t operator()(const dlcp_address& address) const;
    };
    struct Equal {
        bool operator()(const dlcp_address& a, const dlcp_address& b) const;
    };

    std::vector<Way> ways_to(Time now, std::span<const ipstack::UdpAddress> addresses);
    std::size_t ports_of_family(unsigned address_bits) const;
    int refuse(const std::string& text, const ipstack::UdpAddress& address, ErrorText error) const;

    std::span<Uplink> uplinks_;
    std::unordered_map<dlcp_address, std::vector<Way>, Hash, Equal> peers_;
};

}  // namespace dlcp::dpdk

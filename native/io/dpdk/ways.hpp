// How peers are reached: a way is one of our ports and one of the peer's addresses.
//
// Path i takes way i mod ways, so that paths are spread over all ports of both sides. The engine speaks to a peer at the
// address that it was named by, or that a packet of it came from: of any of its ports, and of any path, which is another
// UDP port. So one that was named with several addresses is known by all of these, before and after; they are its own
// alone, since a rank drives its ports alone. One that was never named has one way, to where it sent from.
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
    bool has_room() const { return peers_.size() < peers_max * uplinks_.size(); }
    // Of a peer that was named with several addresses, if this is one of its paths. nullptr: none.
    std::shared_ptr<std::vector<Way>> named_ways(const ipstack::UdpAddress& address) const;
    std::size_t ports_of_family(unsigned address_bits) const;
    int refuse(const std::string& text, const ipstack::UdpAddress& address, ErrorText error) const;

    std::span<Uplink> uplinks_;
    struct Named {
        std::uint16_t port = 0;
        std::shared_ptr<std::vector<Way>> ways;
    };
    std::unordered_map<dlcp_address, std::shared_ptr<std::vector<Way>>, Hash, Equal> peers_;
    std::unordered_map<dlcp_address, Named, Hash, Equal> named_;  // by IP address, with port 0
    std::vector<dlcp_address> heard_;                             // keys of peers_ that nobody has named
};

}  // namespace dlcp::dpdk

// How peers are reached: an address pair is one of our ports and one of the peer's addresses.
//
// Path i takes pair i mod pairs, so that paths are spread over all ports of both sides. The engine speaks to a peer at the
// address that it was named by, or that a packet of it came from: of any of its ports, and of any path, which is another
// UDP port. So a peer that was named with several addresses is known by all of these, before and after; they are its own
// alone, since a rank drives its ports alone. A peer that was never named has one pair, to where it sent from.
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
    bool probing = false;           // payload would be linked, if the device has read it when its burst returns
    std::int64_t probe_due_ns = 0;  // when that may be tried next
    bool was_up = true;             // as its interface knows it
    std::uint64_t resolutions_seen = 0;  // Interface::resolutions() when waiting packets were last looked at
};

struct AddressPair {
    std::uint16_t uplink = 0;
    const ipstack::Destination* destination = nullptr;
    std::uint16_t count = 1;  // of the pairs to this peer: path i is the (i / count)-th of its pair
    std::uint64_t burst = 0;  // the last one that used it
};

class AddressPairs {
public:
    static constexpr std::size_t peers_max = ipstack::Interface::destinations_max;
    static constexpr std::string_view separator = "+dpdk:";  // before a further address

    // `uplinks` must outlive this and stay where they are.
    explicit AddressPairs(std::span<Uplink> uplinks) : uplinks_(uplinks) {}

    // "10.0.0.1:7000+dpdk:10.1.0.1:7000", names too. Asks for the Ethernet addresses at once.
    int resolve(Time now, const char* text, dlcp_address& out, ErrorText error);
    // The pair of a path to a peer. nullptr: cannot be reached, or there are peers_max already.
    AddressPair* find(Time now, const dlcp_address& peer, std::uint16_t path);

private:
    struct Hash {
        std::size_t operator()(const dlcp_address& address) const;
    };
    struct Equal {
        bool operator()(const dlcp_address& a, const dlcp_address& b) const;
    };

    std::vector<AddressPair> pairs_to(Time now, std::span<const ipstack::UdpAddress> addresses);
    bool has_room() const { return peers_.size() < peers_max * uplinks_.size(); }
    // Of a peer that was named with several addresses, if this is one of its paths. nullptr: none.
    std::shared_ptr<std::vector<AddressPair>> named_pairs(const ipstack::UdpAddress& address) const;
    std::size_t ports_of_family(unsigned address_bits) const;
    int refuse(const std::string& text, const ipstack::UdpAddress& address, ErrorText error) const;

    std::span<Uplink> uplinks_;
    struct Named {
        std::uint16_t port = 0;
        std::shared_ptr<std::vector<AddressPair>> pairs;
    };
    std::unordered_map<dlcp_address, std::shared_ptr<std::vector<AddressPair>>, Hash, Equal> peers_;
    std::unordered_map<dlcp_address, Named, Hash, Equal> named_;  // by IP address, with port 0
    std::vector<dlcp_address> heard_;                             // keys of peers_ that nobody has named
};

}  // namespace dlcp::dpdk

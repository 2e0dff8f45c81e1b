// The UDP endpoints that an interface sends to, each with its headers ready. They never move and never go: drivers keep
// pointers to them. Those behind one next hop are a chain, so that its Ethernet address is written into all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "ipstack/address_map.hpp"
#include "ipstack/headers.hpp"

namespace dlcp::ipstack {

class Destinations {
public:
    std::size_t size() const { return all_.size(); }
    // How often one has become resolved.
    std::uint64_t resolutions() const { return resolutions_; }

    Destination* find(const UdpAddress& to) {
        const std::uint32_t number = index_.find(to);
        return number == none ? nullptr : &all_[number];
    }
    // `to` is not there yet. To be prepared by the caller.
    Destination& add(const UdpAddress& to, std::uint32_t next_hop) {
        const auto number = static_cast<std::uint32_t>(all_.size());
        Destination& destination = all_.emplace_back();
        destination.next_hop = next_hop;
        if (next_hop >= first_.size()) first_.resize(next_hop + 1, none);
        next_.push_back(std::exchange(first_[next_hop], number));
        index_.insert(to, number);
        return destination;
    }

    void resolve(Destination& destination, const MacAddress& mac) {
        std::copy(mac.begin(), mac.end(), destination.headers.begin());
        if (!destination.resolved) ++resolutions_;
        destination.resolved = true;
    }
    void resolve_behind(std::uint32_t next_hop, const MacAddress& mac) {
        for (std::uint32_t i = first_behind(next_hop); i != none; i = next_[i]) resolve(all_[i], mac);
    }
    void forget_behind(std::uint32_t next_hop) {
        for (std::uint32_t i = first_behind(next_hop); i != none; i = next_[i]) all_[i].resolved = false;
    }

private:
    static constexpr std::uint32_t none = AddressMap<UdpAddress>::absent;

    std::uint32_t first_behind(std::uint32_t next_hop) const {
        return next_hop < first_.size() ? first_[next_hop] : none;
    }

    std::deque<Destination> all_;
    std::vector<std::uint32_t> next_;   // of each destination: another behind the same next hop
    std::vector<std::uint32_t> first_;  // of each next hop
    AddressMap<UdpAddress> index_;
    std::uint64_t resolutions_ = 0;
};

}  // namespace dlcp::ipstack

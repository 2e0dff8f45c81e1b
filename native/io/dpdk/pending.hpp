// Packets whose next hop's Ethernet address is not known yet: whole datagrams in frames that lack headers.
//
// At most per_destination_max to one UDP endpoint and packets_max in all; the oldest makes room. None waits longer than
// age_ns_max, by when address resolution has given up (three requests in 1.25 s: ipstack/neighbours.cpp).
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ipstack/headers.hpp"

namespace dlcp::dpdk {

struct PendingPacket {
    rte_mbuf* frame = nullptr;
    const ipstack::Destination* destination = nullptr;
    std::uint16_t uplink = 0, queue = 0;
    ipstack::Marking marking;
    std::uint64_t payload_sum = 0;
    std::int64_t since_ns = 0;
};

class Pending {
public:
    static constexpr std::size_t per_destination_max = 32;
    static constexpr std::size_t packets_max = 256;
    static constexpr std::int64_t age_ns_max = 3'000'000'000;

    // Room for all at once: nothing is allocated later, so that a packet kept here is never lost between two owners.
    Pending() { packets_.reserve(packets_max); }
    ~Pending() { clear(); }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;

    // Returns how many made room for it.
    std::size_t add(const PendingPacket& packet);
    // Hands out all that can go now, oldest first: `send(const PendingPacket&)` takes the frame if it answers true.
    template <class Send>
    void take_resolved(Send&& send) {
        std::erase_if(packets_,
                      [&](const PendingPacket& packet) { return packet.destination->resolved && send(packet); });
    }
    // Frees what has waited too long; returns how many.
    std::size_t expire(std::int64_t now_ns);
    std::size_t clear();

    bool empty() const { return packets_.empty(); }
    std::size_t size() const { return packets_.size(); }
    // When the oldest has waited too long; INT64_MAX: there is none.
    std::int64_t deadline_ns() const {
        return packets_.empty() ? INT64_MAX : packets_.front().since_ns + age_ns_max;
    }

private:
    std::vector<PendingPacket> packets_;  // oldest first
};

}  // namespace dlcp::dpdk

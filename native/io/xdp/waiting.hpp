// Datagrams to a neighbour whose Ethernet address is being asked for: copies, since the engine's memory is its own
// again when tx_put returns. At most so many per destination and in all, and not for long; what is beyond is lost
// locally.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "ipstack/headers.hpp"

namespace dlcp::xdp {

class Waiting {
public:
    static constexpr std::size_t packets_max = 256;
    static constexpr std::size_t packets_per_destination_max = 32;
    // A neighbour that is there has answered by then, if not to the first three requests (neighbours.cpp: 1.25 s) then
    // to one of those that follow each second.
    static constexpr std::int64_t age_ns_max = 3'500'000'000;

    struct Packet {
        const ipstack::Destination* destination;
        ipstack::Marking marking;
        std::int64_t since_ns;
        std::vector<std::uint8_t> payload;
    };

    bool empty() const { return packets_.empty(); }

    // False: no room.
    bool add(const ipstack::Destination& destination, const ipstack::Marking& marking, std::int64_t now_ns,
             std::span<const std::uint8_t> payload) {
        const auto same = std::count_if(packets_.begin(), packets_.end(),
                                        [&](const Packet& packet) { return packet.destination == &destination; });
        if (packets_.size() >= packets_max || static_cast<std::size_t>(same) >= packets_per_destination_max)
            return false;
        packets_.push_back({&destination, marking, now_ns, {payload.begin(), payload.end()}});
        return true;
    }

    // Hands those that can go to `send`, oldest first, until it returns false.
    template <class Send>
    void send_resolved(Send send) {
        bool going = true;
        std::erase_if(packets_, [&](const Packet& packet) {
            if (!going || !packet.destination->resolved) return false;
            going = send(packet);
            return going;
        });
    }

    // Forgets those that have waited too long; returns how many.
    std::size_t expire(std::int64_t now_ns) {
        std::size_t expired = 0;
        for (; !packets_.empty() && now_ns - packets_.front().since_ns > age_ns_max; ++expired)
            packets_.pop_front();
        return expired;
    }

private:
    std::deque<Packet> packets_;  // oldest first
};

}  // namespace dlcp::xdp

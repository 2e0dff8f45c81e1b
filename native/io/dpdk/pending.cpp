// Adds, expires and frees packets that wait for their next hop's Ethernet address.
#include "io/dpdk/pending.hpp"

namespace dlcp::dpdk {

std::size_t Pending::add(const PendingPacket& packet) {
    const auto same = [&](const PendingPacket& other) { return other.destination == packet.destination; };
    std::size_t dropped = 0;
    auto oldest = packets_.end();
    if (std::count_if(packets_.begin(), packets_.end(), same) >= static_cast<std::ptrdiff_t>(per_destination_max))
        oldest = std::find_if(packets_.begin(), packets_.end(), same);
    else if (packets_.size() >= packets_max)
        oldest = packets_.begin();
    if (oldest != packets_.end()) {
        rte_pktmbuf_free(oldest->frame);
        packets_.erase(oldest);
        ++dropped;
    }
    packets_.push_back(packet);
    return dropped;
}

std::size_t Pending::expire(std::int64_t now_ns) {
    std::size_t dropped = 0;
    for (; deadline_ns() <= now_ns; ++dropped) {
        rte_pktmbuf_free(packets_.front().frame);
        packets_.erase(packets_.begin());
    }
    return dropped;
}

std::size_t Pending::clear() {
    const std::size_t dropped = packets_.size();
    for (const PendingPacket& packet : packets_) rte_pktmbuf_free(packet.frame);
    packets_.clear();
    return dropped;
}

}  // namespace dlcp::dpdk

// Queues served by rank: the flow with least remaining leaves first, that with most is dropped first (pFabric).
#include "sim/core/rank_queue.hpp"

#include <algorithm>

#include "sim/core/domain.hpp"

namespace dlcp::sim {
namespace {

std::uint64_t key_of(const Packet& packet) { return std::uint64_t{packet.flow} << 1 | packet.reverse; }

}  // namespace

std::uint32_t RankQueue::push(Domain& domain, std::uint32_t slot, std::uint32_t capacity_bytes) {
    Packet& packet = domain.packet(slot);
    const std::uint32_t rank = domain.extra(slot).rank;
    packet.next = none;

    // Room is made before the packet joins, so that of equal ranks the newcomer is the one to go.
    std::uint32_t out = none;
    while (std::uint64_t{bytes_} + packet.wire_bytes > capacity_bytes) {
        if (flows_.empty() || rank >= rank_max_) {
            packet.next = out;
            return slot;
        }
        // The highest rank; of equal ones the flow that joined last, and its latest packet.
        std::size_t worst = 0;
        std::uint32_t worst_slot = none, worst_before = none, worst_rank = 0;
        for (std::size_t i = 0; i < flows_.size(); ++i) {
            std::uint32_t before = none;
            for (std::uint32_t s = flows_[i].head; s != none; before = s, s = domain.packet(s).next) {
                const std::uint32_t r = domain.extra(s).rank;
                if (worst_slot != none && r < worst_rank) continue;
                if (worst_slot != none && r == worst_rank && i != worst && flows_[i].since < flows_[worst].since)
                    continue;
                worst = i;
                worst_slot = s;
                worst_before = before;
                worst_rank = r;
            }
        }
        rank_max_ = worst_rank;
        if (rank >= worst_rank) continue;  // the bound was too high
        unlink(domain, worst, worst_before, worst_slot);
        domain.packet(worst_slot).next = out;
        out = worst_slot;
    }

    bytes_ += packet.wire_bytes;
    rank_max_ = std::max(rank_max_, rank);
    const std::uint64_t key = key_of(packet);
    for (Waiting& flow : flows_) {
        if (flow.key != key) continue;
        domain.packet(flow.tail).next = slot;
        flow.tail = slot;
        flow.rank_min = std::min(flow.rank_min, rank);
        return out;
    }
    flows_.push_back({key, slot, slot, rank, joined_++});
    return out;
}

std::uint32_t RankQueue::pop(Domain& domain) {
    if (flows_.empty()) return none;
    std::size_t best = 0;
    for (std::size_t i = 1; i < flows_.size(); ++i) {
        const Waiting& a = flows_[i];
        const Waiting& b = flows_[best];
        // `since` wraps around after 2^32 joinings; the difference is still right.
        if (a.rank_min < b.rank_min ||
            (a.rank_min == b.rank_min && static_cast<std::int32_t>(a.since - b.since) < 0))
            best = i;
    }
    const std::uint32_t slot = flows_[best].head;
    unlink(domain, best, none, slot);
    return slot;
}

// Takes `slot` out of the chain of flow `index`; `before` is its predecessor there, or `none`.
void RankQueue::unlink(Domain& domain, std::size_t index, std::uint32_t before, std::uint32_t slot) {
    Waiting& flow = flows_[index];
    Packet& packet = domain.packet(slot);
    bytes_ -= packet.wire_bytes;
    if (before == none)
        flow.head = packet.next;
    else
        domain.packet(before).next = packet.next;
    if (flow.tail == slot) flow.tail = before;
    packet.next = none;
    if (flow.head == none) {
        flow = flows_.back();
        flows_.pop_back();
        if (flows_.empty()) rank_max_ = 0;
        return;
    }
    // Ranks fall as a flow goes on, so the least is mostly the last one's and this loop rare.
    if (domain.extra(slot).rank != flow.rank_min || domain.extra(flow.tail).rank == flow.rank_min) return;
    flow.rank_min = domain.extra(flow.head).rank;
    for (std::uint32_t s = flow.head; s != none; s = domain.packet(s).next)
        flow.rank_min = std::min(flow.rank_min, domain.extra(s).rank);
}

}  // namespace dlcp::sim

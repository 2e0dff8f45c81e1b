// A queue served by rank, as pFabric's switches keep it (Alizadeh et al., SIGCOMM 2013, section 4).
//
// Lower ranks leave first: of the flow that has the packet of least rank, the earliest packet, so that a flow is neither
// reordered nor starved by its own later packets. When there is no room, the packet of highest rank is pushed out.
// Packets keep their slots and are chained by `next`; the rank stands in domain.extra(slot).rank. Work per packet grows
// with the number of flows that wait, and when something is pushed out with the number of packets: these queues are
// small by design.
#pragma once

#include <cstdint>
#include <vector>

namespace dlcp::sim {

class Domain;

class RankQueue {
public:
    // Adds a packet. Returns what has no room then: `none`, the packet itself, or packets pushed out for it, chained by
    // `next` (a long packet may push out several short ones); they are the caller's.
    std::uint32_t push(Domain& domain, std::uint32_t slot, std::uint32_t capacity_bytes);
    // The packet to send, or `none`.
    std::uint32_t pop(Domain& domain);
    bool empty() const { return flows_.empty(); }
    // What waits, on the wire.
    std::uint32_t bytes() const { return bytes_; }

private:
    // One direction of a flow that has packets here.
    struct Waiting {
        std::uint64_t key;   // flow and direction
        std::uint32_t head;  // the earliest; packets chained by `next`
        std::uint32_t tail;
        std::uint32_t rank_min;  // of its packets
        std::uint32_t since;     // order of joining: decides between equal ranks
    };
    void unlink(Domain& domain, std::size_t index, std::uint32_t before, std::uint32_t slot);

    std::vector<Waiting> flows_;  // in no order
    std::uint32_t bytes_ = 0;
    std::uint32_t rank_max_ = 0;  // no packet here has a higher rank; may be too high, never too low
    std::uint32_t joined_ = 0;
};

}  // namespace dlcp::sim

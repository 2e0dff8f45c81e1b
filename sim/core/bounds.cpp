// Bounds: the least time of a flow, and the times of an empty network.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "sim/core/simulation.hpp"

namespace dlcp::sim {
namespace {

// The links of a shortest path from one host to another, for the time of an unloaded packet. Of equal paths the first.
// The visitor also learns whether every packet must take this link (there was no choice so far).
template <class Visit>
bool walk(const Fabric& fabric, const Routes& routes, std::uint32_t source, std::uint32_t destination,
          Visit visit) {
    std::uint32_t port = source;
    bool only_hop = true;
    for (std::uint32_t links = 0; links < 64; ++links) {
        const Link& link = fabric.link(port);
        visit(link, only_hop || link.to == destination);
        if (link.to == destination) return true;
        const NextHops hops = routes.next_hops(routes.first_table(), link.to, destination);
        if (hops.count == 0) return false;
        only_hop &= hops.count == 1;
        port = hops[0];
    }
    return false;
}

}  // namespace

std::int64_t Simulation::base_rtt_ps(std::uint32_t source, std::uint32_t destination, std::uint32_t data_bytes,
                                     std::uint32_t ack_bytes) const {
    for (const std::uint32_t host : {source, destination})
        if (host >= fabric_.hosts())
            throw std::invalid_argument("host is " + std::to_string(host) + "; accepted: 0 to " +
                                        std::to_string(fabric_.hosts() - 1));
    std::int64_t sum_ps = 0;
    const auto add = [&sum_ps](std::uint32_t bytes) {
        return [&sum_ps, bytes](const Link& link, bool) {
            sum_ps +=
                link.delay_ps + Port::transmit_ps(bytes, ps_per_byte_q16(static_cast<double>(link.rate_bps)));
        };
    };
    if (!walk(fabric_, *routes_, source, destination, add(data_bytes)) ||
        !walk(fabric_, *routes_, destination, source, add(ack_bytes)))
        throw std::invalid_argument("there is no route between hosts " + std::to_string(source) + " and " +
                                    std::to_string(destination));
    return settings_.host_costs ? sum_ps + settings_.host_costs->rtt_ps(data_bytes, ack_bytes) : sum_ps;
}

namespace {

// Payload at the slowest of some links, and all their delays.
struct Least {
    std::uint64_t slowest_q16 = 0;
    std::int64_t delay_ps = 0;

    void add(const Link& link, bool only_hop) {
        // Where there is a choice, packets may be sprayed over all next hops, each slower than all of them together.
        if (only_hop)
            slowest_q16 = std::max(slowest_q16, Simulation::ps_per_byte_q16(static_cast<double>(link.rate_bps)));
        delay_ps += link.delay_ps;
    }
    std::int64_t time_ps(std::uint64_t bytes) const {
        __extension__ using u128 = unsigned __int128;
        return delay_ps + static_cast<std::int64_t>(u128{bytes} * slowest_q16 >> 16);
    }
};

}  // namespace

std::int64_t Simulation::ideal_ps(const Flow& flow) const {
    Least least;
    walk(fabric_, *routes_, flow.source, flow.destination,
         [&least](const Link& link, bool only_hop) { least.add(link, only_hop); });
    return least.time_ps(flow.bytes);
}

std::int64_t Simulation::bound_ps(const Flow& flow, std::uint64_t bytes) const {
    Least least;
    if (fabric_.clos() != nullptr && faults_.empty()) {
        walk(fabric_, *routes_, flow.source, flow.destination,
             [&least](const Link& link, bool only_hop) { least.add(link, only_hop); });
    } else {
        // On a graph another path may be faster than a shortest one, and faults may change rates. Then only the hosts'
        // own links are certain, and with faults only their delays.
        least.add(fabric_.link(flow.source), true);
        least.add(fabric_.link(fabric_.reverse(flow.destination)), true);
        if (!faults_.empty()) least.slowest_q16 = 0;
    }
    return least.time_ps(bytes);
}

}  // namespace dlcp::sim

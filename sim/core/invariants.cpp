// Conservation of packets, checked after a run: slow, for tests and on request.
#include <string>

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim {

// Per port and class: in = sent + dropped + trimmed + waiting. Over all: sent = lost + arrived + on links.
std::string Simulation::broken_invariant() const {
    std::uint64_t sent = 0, lost = 0, arrived = 0, on_links = 0;
    for (const auto& domain : domains_) {
        arrived += domain->hops();
        on_links += domain->on_links();
        for (const auto& mail : domain->out_) on_links += mail.size();
    }
    for (std::uint32_t p = 0; p < fabric_.ports(); ++p) {
        const Domain& domain = *domains_[domain_of_node_[fabric_.link(p).from]];
        std::uint64_t waiting_bytes = 0;
        for (std::uint32_t c = 0; c < switching::traffic_classes; ++c) {
            const PacketCounters& k = packet_counters(p, c);
            const EventCounters& e = event_counters(p, c);
            sent += k.packets_sent;
            lost += e.packets_lost;
            if (!rank_queues_.empty()) continue;
            std::uint64_t waiting = 0, bytes = 0;
            for (std::uint32_t slot = queues_[p].head[c]; slot != none; slot = domain.packets_[slot].next) {
                ++waiting;
                bytes += domain.packets_[slot].wire_bytes;
            }
            waiting_bytes += bytes;
            const std::string where = " at port " + std::to_string(p) + " (" + fabric_.name(fabric_.link(p).from) +
                                      " to " + fabric_.name(fabric_.link(p).to) + "), class " + std::to_string(c);
            if (bytes != queues_[p].bytes[c]) return "queue bytes are wrong" + where;
            if (k.packets_in != k.packets_sent + e.packets_dropped + e.packets_trimmed + waiting)
                return "packets in are not packets out" + where + ": in " + std::to_string(k.packets_in) +
                       ", sent " + std::to_string(k.packets_sent) + ", dropped " +
                       std::to_string(e.packets_dropped) + ", trimmed " + std::to_string(e.packets_trimmed) +
                       ", waiting " + std::to_string(waiting);
        }
        if (rank_queues_.empty() && waiting_bytes != ports_[p].waiting_bytes)
            return "waiting bytes are wrong at port " + std::to_string(p);
    }
    if (sent != lost + arrived + on_links)
        return "packets sent are not packets lost, arrived and in flight: " + std::to_string(sent) + " against " +
               std::to_string(lost) + " + " + std::to_string(arrived) + " + " + std::to_string(on_links);
    return "";
}

}  // namespace dlcp::sim

// Equal next hops to every host: by arithmetic in trees, from tables in other graphs and where links are down.
#include "sim/core/routes.hpp"

#include <map>
#include <stdexcept>

namespace dlcp::sim {
namespace {

// The switches that hosts hang on, in the order of their numbers, and each switch's place among them.
std::vector<std::uint32_t> edge_indices(const Fabric& fabric, std::vector<std::uint32_t>& edges) {
    std::vector<std::uint32_t> index(fabric.switches(), none);
    for (std::uint32_t h = 0; h < fabric.hosts(); ++h) index[fabric.edge_of(h) - fabric.hosts()] = 0;
    for (std::uint32_t s = 0; s < fabric.switches(); ++s) {
        if (index[s] == none) continue;
        index[s] = static_cast<std::uint32_t>(edges.size());
        edges.push_back(s);
    }
    return index;
}

}  // namespace

RouteTable::RouteTable(const Fabric& fabric, const std::vector<bool>& down) {
    std::vector<std::uint32_t> edges;
    edge_indices(fabric, edges);
    edges_ = edges.size();
    set_of_.resize(fabric.switches() * edges_);
    std::map<std::vector<std::uint32_t>, std::uint32_t> known;
    std::vector<std::uint32_t> distance(fabric.switches()), queue;
    std::vector<std::uint32_t> set;
    for (std::size_t e = 0; e < edges_; ++e) {
        // Breadth first from the edge switch, against the direction of traffic.
        std::fill(distance.begin(), distance.end(), none);
        queue.assign(1, edges[e]);
        distance[edges[e]] = 0;
        for (std::size_t i = 0; i < queue.size(); ++i) {
            const std::uint32_t node = fabric.hosts() + queue[i];
            for (std::uint32_t p = fabric.first_port(node); p < fabric.first_port(node + 1); ++p) {
                const std::uint32_t from = fabric.link(p).to;
                if (from < fabric.hosts() || down[fabric.reverse(p)]) continue;
                if (distance[from - fabric.hosts()] != none) continue;
                distance[from - fabric.hosts()] = distance[queue[i]] + 1;
                queue.push_back(from - fabric.hosts());
            }
        }
        for (std::uint32_t s = 0; s < fabric.switches(); ++s) {
            set.clear();
            const std::uint32_t node = fabric.hosts() + s;
            if (distance[s] != none && distance[s] > 0)
                for (std::uint32_t p = fabric.first_port(node); p < fabric.first_port(node + 1); ++p) {
                    const std::uint32_t to = fabric.link(p).to;
                    if (to >= fabric.hosts() && !down[p] && distance[to - fabric.hosts()] == distance[s] - 1)
                        set.push_back(p);
                }
            const auto [found, added] = known.try_emplace(set, static_cast<std::uint32_t>(sets_.size()));
            if (added) {
                sets_.push_back(
                    {static_cast<std::uint32_t>(ports_.size()), static_cast<std::uint32_t>(set.size())});
                ports_.insert(ports_.end(), set.begin(), set.end());
            }
            set_of_[s * edges_ + e] = found->second;
        }
    }
}

Routes::Routes(const Fabric& fabric) : hosts_(fabric.hosts()), host_(fabric.hosts()), switch_(fabric.switches()) {
    std::vector<std::uint32_t> edges;
    const std::vector<std::uint32_t> index = edge_indices(fabric, edges);
    const Clos* clos = fabric.clos();
    for (std::uint32_t h = 0; h < hosts_; ++h) {
        const std::uint32_t edge = fabric.edge_of(h);
        host_[h] = {edge, fabric.reverse(h), index[edge - hosts_], 0, 0};
        if (clos == nullptr) continue;
        host_[h].pod = static_cast<std::uint16_t>((edge - hosts_) / clos->edges);
        host_[h].edge_in_pod = static_cast<std::uint16_t>((edge - hosts_) % clos->edges);
    }
    if (clos == nullptr) {
        first_table_ = std::make_unique<RouteTable>(fabric, std::vector<bool>(fabric.ports(), false));
        return;
    }
    const std::uint32_t edge_switches = clos->pods * clos->edges;
    const std::uint32_t aggregations = clos->pods * clos->aggregations;
    for (std::uint32_t s = 0; s < fabric.switches(); ++s) {
        const std::uint32_t node = hosts_ + s, first = fabric.first_port(node),
                            ports = fabric.first_port(node + 1) - first;
        const std::uint32_t tier = s < edge_switches ? 0 : s < edge_switches + aggregations ? 1 : 2;
        const std::uint32_t downs = tier == 0 ? clos->hosts : tier == 1 ? clos->edges : ports;
        const std::uint32_t pod = tier == 0   ? s / clos->edges
                                  : tier == 1 ? (s - edge_switches) / clos->aggregations
                                              : 0;
        switch_[s] = {first, first + downs, static_cast<std::uint16_t>(ports - downs),
                      static_cast<std::uint16_t>(pod), tier};
    }
}

void RouteVersions::prepare(const Fabric& fabric, const std::vector<Fault>& faults) {
    std::vector<bool> down(fabric.ports(), false);
    tables_.resize(faults.size());
    for (std::size_t i = 0; i < faults.size(); ++i) {
        if (faults[i].kind == FaultKind::down) down[faults[i].port] = true;
        if (faults[i].kind == FaultKind::up) down[faults[i].port] = false;
        if (faults[i].kind == FaultKind::reroute) tables_[i] = std::make_unique<RouteTable>(fabric, down);
    }
}

}  // namespace dlcp::sim

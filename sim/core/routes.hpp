// Which ports lead from a switch to a host: by arithmetic on regular trees, by tables elsewhere.
//
// A table keeps, per switch and per switch with hosts, the set of ports on shortest paths; equal sets are stored once.
// Versions follow faults: a switch that knows that a link is down sends nothing there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/core/fabric.hpp"
#include "sim/core/faults.hpp"

namespace dlcp::sim {

// Equal next hops, as ports: `list`, or if that is nullptr the ports from `first` on. count 0: the host cannot be reached.
struct NextHops {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    const std::uint32_t* list = nullptr;

    std::uint32_t operator[](std::uint32_t i) const { return list == nullptr ? first + i : list[i]; }
};

class RouteTable {
public:
    // Shortest paths over the links whose bit in `down` (per port) is not set.
    RouteTable(const Fabric& fabric, const std::vector<bool>& down);

    NextHops next_hops(std::uint32_t switch_index, std::uint32_t edge_index) const {
        const Set& set = sets_[set_of_[std::size_t{switch_index} * edges_ + edge_index]];
        return {0, set.count, ports_.data() + set.offset};
    }

private:
    struct Set {
        std::uint32_t offset;
        std::uint32_t count;
    };
    std::size_t edges_;
    std::vector<std::uint32_t> set_of_;
    std::vector<Set> sets_;
    std::vector<std::uint32_t> ports_;
};

class Routes {
public:
    explicit Routes(const Fabric& fabric);

    // From a switch (by its node number) to a host. Inline: every hop asks.
    NextHops next_hops(const RouteTable* table, std::uint32_t node, std::uint32_t host) const {
        const Host& h = host_[host];
        if (h.edge == node) return {h.last_port, 1, nullptr};
        const Switch& s = switch_[node - hosts_];
        if (table != nullptr) return table->next_hops(node - hosts_, h.edge_index);
        switch (s.tier) {
            case 0: return {s.up_port, s.up_ports, nullptr};
            case 1:
                if (h.pod == s.pod) return {s.first_port + h.edge_in_pod, 1, nullptr};
                return {s.up_port, s.up_ports, nullptr};
            default: return {s.first_port + h.pod, 1, nullptr};
        }
    }
    // A graph has no arithmetic: its first table. nullptr for trees.
    const RouteTable* first_table() const { return first_table_.get(); }

private:
    struct Host {
        std::uint32_t edge;       // node
        std::uint32_t last_port;  // from there to the host
        std::uint32_t edge_index;
        std::uint16_t pod;
        std::uint16_t edge_in_pod;
    };
    struct Switch {
        std::uint32_t first_port;
        std::uint32_t up_port;
        std::uint16_t up_ports;
        std::uint16_t pod;
        std::uint32_t tier;
    };
    std::uint32_t hosts_;
    std::vector<Host> host_;
    std::vector<Switch> switch_;
    std::unique_ptr<RouteTable> first_table_;
};

// All tables that a run's `reroute` faults ask for, made beforehand: by the number of the fault.
class RouteVersions {
public:
    void prepare(const Fabric& fabric, const std::vector<Fault>& faults);
    const RouteTable* table(std::size_t fault) const { return tables_[fault].get(); }

private:
    std::vector<std::unique_ptr<RouteTable>> tables_;
};

}  // namespace dlcp::sim

// What a network is made of: hosts, switches, and directed links between them.
//
// Nodes are numbered hosts first, then switches. A *port* is the sending end of one directed link; it is numbered over
// the whole fabric: port h is host h's (a host has one), then each switch's in a row. Regular trees (up to three tiers)
// are routed by arithmetic on these numbers; other graphs, and trees with links down, by tables (routes.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/packet.hpp"

namespace dlcp::sim {

struct Link {
    std::uint32_t from = none;  // nodes
    std::uint32_t to = none;
    std::uint64_t rate_bps = 0;
    std::int64_t delay_ps = 0;
};

// A folded Clos network: `pods` of `edges` switches with `hosts` each, `aggregations` per pod above them, and `cores`
// above all, each aggregation switch linked to cores / aggregations of them. One pod without cores: leaf and spine.
// One edge switch without aggregations: a star. A k-ary fat-tree: k, k/2, k/2, k/2, k²/4.
struct Clos {
    std::uint32_t pods = 1;
    std::uint32_t edges = 1;
    std::uint32_t hosts = 2;
    std::uint32_t aggregations = 0;
    std::uint32_t cores = 0;
    std::uint64_t host_rate_bps = 0;
    std::uint64_t edge_rate_bps = 0;  // between edge and aggregation
    std::uint64_t core_rate_bps = 0;  // between aggregation and core
    std::int64_t host_delay_ps = 0;
    std::int64_t edge_delay_ps = 0;
    std::int64_t core_delay_ps = 0;
};

class Fabric {
public:
    // Throws std::invalid_argument, naming what is wrong.
    explicit Fabric(const Clos& shape);
    // Any graph. Each cable is two links; hosts have exactly one, to a switch. `region` (may be empty): per switch,
    // what should be simulated by one thread together; hosts follow their switch.
    Fabric(std::uint32_t hosts, std::uint32_t switches, const std::vector<Link>& cables,
           const std::vector<std::uint32_t>& region = {});

    std::uint32_t hosts() const { return hosts_; }
    std::uint32_t switches() const { return switches_; }
    std::uint32_t nodes() const { return hosts_ + switches_; }
    std::uint32_t ports() const { return static_cast<std::uint32_t>(links_.size()); }
    const Link& link(std::uint32_t port) const { return links_[port]; }
    // Another rate for one direction; before the simulation is built.
    void set_rate(std::uint32_t port, std::uint64_t rate_bps);
    // The port of the other direction of the same cable.
    std::uint32_t reverse(std::uint32_t port) const { return reverse_[port]; }
    // The port from one node to another; `none` if there is no link. Of several, the first.
    std::uint32_t port_between(std::uint32_t from, std::uint32_t to) const;
    // A node's ports are [first_port(node), first_port(node + 1)).
    std::uint32_t first_port(std::uint32_t node) const { return first_port_[node]; }
    // The switch that a host hangs on.
    std::uint32_t edge_of(std::uint32_t host) const { return links_[host].to; }
    // nullptr: not a regular tree.
    const Clos* clos() const { return regular_ ? &clos_ : nullptr; }
    // Nodes of one region are simulated by one thread: a pod, or with a single pod an edge switch and its hosts.
    std::uint32_t regions() const { return regions_; }
    std::uint32_t region_of(std::uint32_t node) const { return region_[node]; }
    // "host 3", "edge 2", "aggregation 1", "core 0", "switch 4"
    std::string name(std::uint32_t node) const;

private:
    std::uint32_t add_link(const Link& link);

    bool regular_ = false;
    Clos clos_;
    std::uint32_t hosts_ = 0;
    std::uint32_t switches_ = 0;
    std::uint32_t regions_ = 1;
    std::vector<Link> links_;
    std::vector<std::uint32_t> reverse_;
    std::vector<std::uint32_t> first_port_;
    std::vector<std::uint32_t> region_;
};

}  // namespace dlcp::sim

// Fabrics built from numbers of a Clos network or from a list of cables, and checked.
#include "sim/core/fabric.hpp"

#include <algorithm>
#include <stdexcept>

namespace dlcp::sim {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

// 24 bits name a host in a packet.
constexpr std::uint32_t max_hosts = 1u << 24;
// 30 bits name a port in an event.
constexpr std::uint64_t max_ports = 1u << 30;

// Also bounds the number of switches, so that their numbers and the sums of them fit 32 bits.
void check_ports(std::uint64_t ports) {
    if (ports >= max_ports)
        refuse("the fabric has " + std::to_string(ports) + " ports; accepted: less than 2^30, two for each cable");
}

void check(const Link& link, const std::string& where) {
    if (link.rate_bps < 1000 || link.rate_bps > 100'000'000'000'000)
        refuse("rate_bps of " + where + " is " + std::to_string(link.rate_bps) + "; accepted: 1e3 to 1e14");
    if (link.delay_ps < 1 || link.delay_ps > 10'000'000'000'000)
        refuse("delay_ps of " + where + " is " + std::to_string(link.delay_ps) + "; accepted: 1 to 1e13 (10 s)");
}

}  // namespace

std::uint32_t Fabric::add_link(const Link& link) {
    links_.push_back(link);
    return static_cast<std::uint32_t>(links_.size() - 1);
}

Fabric::Fabric(const Clos& shape) : regular_(true), clos_(shape) {
    const Clos& c = clos_;
    const auto at_least = [](std::uint32_t value, std::uint32_t least, const char* what) {
        if (value < least || value > 65535)
            refuse(std::string(what) + " is " + std::to_string(value) + "; accepted: " + std::to_string(least) +
                   " to 65535");
    };
    at_least(c.pods, 1, "pods");
    at_least(c.edges, 1, "edges");
    at_least(c.hosts, 1, "hosts");
    at_least(c.aggregations, 0, "aggregations");
    at_least(c.cores, 0, "cores");
    if (c.edges > 1 && c.aggregations == 0)
        refuse("aggregations is 0; accepted: 1 or more, since a pod has several edges");
    if (c.pods > 1 && c.cores == 0) refuse("cores is 0; accepted: 1 or more, since there are several pods");
    if (c.cores > 0 && (c.aggregations == 0 || c.cores % c.aggregations != 0))
        refuse("cores is " + std::to_string(c.cores) + "; accepted: a multiple of aggregations, which is " +
               std::to_string(c.aggregations));
    const std::uint64_t all = std::uint64_t{c.pods} * c.edges * c.hosts;
    if (all < 2 || all >= max_hosts)
        refuse("the fabric has " + std::to_string(all) + " hosts; accepted: 2 to 2^24 - 1");

    check_ports(2 * (all + std::uint64_t{c.pods} * c.aggregations * c.edges + std::uint64_t{c.pods} * c.cores));

    const std::uint32_t edges = c.pods * c.edges;
    const std::uint32_t aggregations = c.pods * c.aggregations;
    const std::uint32_t ups = c.cores == 0 ? 0 : c.cores / c.aggregations;  // of an aggregation switch
    hosts_ = static_cast<std::uint32_t>(all);
    switches_ = edges + aggregations + c.cores;
    regions_ = c.pods > 1 ? c.pods : c.edges;
    const std::uint32_t first_edge = hosts_, first_aggregation = hosts_ + edges,
                        first_core = first_aggregation + aggregations;

    links_.reserve(std::size_t{2} * (hosts_ + edges * c.aggregations + aggregations * ups));
    first_port_.resize(nodes() + 1);
    region_.resize(nodes());
    const auto region = [&c](std::uint32_t edge) { return c.pods > 1 ? edge / c.edges : edge; };
    for (std::uint32_t h = 0; h < hosts_; ++h) {
        const std::uint32_t edge = h / c.hosts;
        first_port_[h] = add_link({h, first_edge + edge, c.host_rate_bps, c.host_delay_ps});
        region_[h] = region(edge);
    }
    for (std::uint32_t e = 0; e < edges; ++e) {
        const std::uint32_t node = first_edge + e, pod = e / c.edges;
        region_[node] = region(e);
        first_port_[node] = ports();
        for (std::uint32_t i = 0; i < c.hosts; ++i)
            add_link({node, e * c.hosts + i, c.host_rate_bps, c.host_delay_ps});
        for (std::uint32_t i = 0; i < c.aggregations; ++i)
            add_link({node, first_aggregation + pod * c.aggregations + i, c.edge_rate_bps, c.edge_delay_ps});
    }
    for (std::uint32_t a = 0; a < aggregations; ++a) {
        const std::uint32_t node = first_aggregation + a, pod = a / c.aggregations, index = a % c.aggregations;
        region_[node] = c.pods > 1 ? pod : a * c.edges / c.aggregations;
        first_port_[node] = ports();
        for (std::uint32_t i = 0; i < c.edges; ++i)
            add_link({node, first_edge + pod * c.edges + i, c.edge_rate_bps, c.edge_delay_ps});
        for (std::uint32_t i = 0; i < ups; ++i)
            add_link({node, first_core + index * ups + i, c.core_rate_bps, c.core_delay_ps});
    }
    for (std::uint32_t k = 0; k < c.cores; ++k) {
        const std::uint32_t node = first_core + k;
        region_[node] = static_cast<std::uint32_t>(std::uint64_t{k} * c.pods / c.cores);  // spread over the pods
        first_port_[node] = ports();
        for (std::uint32_t p = 0; p < c.pods; ++p)
            add_link({node, first_aggregation + p * c.aggregations + k / ups, c.core_rate_bps, c.core_delay_ps});
    }
    first_port_[nodes()] = ports();
    check({0, 0, c.host_rate_bps, c.host_delay_ps}, "host links");
    if (c.aggregations > 0) check({0, 0, c.edge_rate_bps, c.edge_delay_ps}, "links of edge switches");
    if (c.cores > 0) check({0, 0, c.core_rate_bps, c.core_delay_ps}, "links of cores");

    reverse_.resize(ports());
    for (std::uint32_t h = 0; h < hosts_; ++h) {
        const std::uint32_t down = first_port_[first_edge + h / c.hosts] + h % c.hosts;
        reverse_[h] = down;
        reverse_[down] = h;
    }
    for (std::uint32_t e = 0; e < edges; ++e)
        for (std::uint32_t i = 0; i < c.aggregations; ++i) {
            const std::uint32_t up = first_port_[first_edge + e] + c.hosts + i;
            const std::uint32_t down = first_port_[links_[up].to] + e % c.edges;
            reverse_[up] = down;
            reverse_[down] = up;
        }
    for (std::uint32_t a = 0; a < aggregations; ++a)
        for (std::uint32_t i = 0; i < ups; ++i) {
            const std::uint32_t up = first_port_[first_aggregation + a] + c.edges + i;
            const std::uint32_t down = first_port_[links_[up].to] + a / c.aggregations;
            reverse_[up] = down;
            reverse_[down] = up;
        }
}

Fabric::Fabric(std::uint32_t hosts, std::uint32_t switches, const std::vector<Link>& cables,
               const std::vector<std::uint32_t>& region)
    : hosts_(hosts), switches_(switches) {
    if (hosts < 2 || hosts >= max_hosts) refuse("hosts is " + std::to_string(hosts) + "; accepted: 2 to 2^24 - 1");
    if (switches < 1 || switches >= max_hosts)
        refuse("switches is " + std::to_string(switches) + "; accepted: 1 to 2^24 - 1");
    check_ports(2 * cables.size());
    if (!region.empty() && region.size() != switches)
        refuse("region has " + std::to_string(region.size()) + " entries; accepted: one per switch, " +
               std::to_string(switches));
    std::vector<std::uint32_t> degree(nodes(), 0);
    for (const Link& cable : cables) {
        for (std::uint32_t end : {cable.from, cable.to})
            if (end >= nodes())
                refuse("a cable ends at node " + std::to_string(end) + "; accepted: 0 to " +
                       std::to_string(nodes() - 1));
        if (cable.from == cable.to) refuse("a cable joins node " + std::to_string(cable.from) + " to itself");
        if (cable.from < hosts && cable.to < hosts)
            refuse("a cable joins hosts " + std::to_string(cable.from) + " and " + std::to_string(cable.to) +
                   "; accepted: hosts hang on switches");
        check(cable, "the cable from node " + std::to_string(cable.from) + " to " + std::to_string(cable.to));
        ++degree[cable.from];
        ++degree[cable.to];
    }
    for (std::uint32_t h = 0; h < hosts; ++h)
        if (degree[h] != 1)
            refuse("host " + std::to_string(h) + " has " + std::to_string(degree[h]) + " cables; accepted: 1");

    first_port_.resize(nodes() + 1);
    std::uint32_t next = 0;
    for (std::uint32_t n = 0; n < nodes(); ++n) {
        first_port_[n] = next;
        next += degree[n];
    }
    first_port_[nodes()] = next;
    links_.resize(next);
    reverse_.resize(next);
    std::vector<std::uint32_t> filled(first_port_.begin(), first_port_.end() - 1);
    for (const Link& cable : cables) {
        const std::uint32_t out = filled[cable.from]++, back = filled[cable.to]++;
        links_[out] = cable;
        links_[back] = {cable.to, cable.from, cable.rate_bps, cable.delay_ps};
        reverse_[out] = back;
        reverse_[back] = out;
    }
    region_.assign(nodes(), 0);
    for (std::uint32_t s = 0; s < switches; ++s) {
        const std::uint32_t r = region.empty() ? s : region[s];
        if (r >= switches)
            refuse("region of switch " + std::to_string(s) + " is " + std::to_string(r) + "; accepted: 0 to " +
                   std::to_string(switches - 1));
        region_[hosts + s] = r;
        regions_ = std::max(regions_, r + 1);
    }
    for (std::uint32_t h = 0; h < hosts; ++h) region_[h] = region_[links_[h].to];
}

void Fabric::set_rate(std::uint32_t port, std::uint64_t rate_bps) {
    if (port >= ports())
        refuse("port is " + std::to_string(port) + "; accepted: 0 to " + std::to_string(ports() - 1));
    Link link = links_[port];
    link.rate_bps = rate_bps;
    check(link, "port " + std::to_string(port));
    links_[port] = link;
}

std::uint32_t Fabric::port_between(std::uint32_t from, std::uint32_t to) const {
    if (from >= nodes() || to >= nodes())
        refuse("node is " + std::to_string(std::max(from, to)) + "; accepted: 0 to " +
               std::to_string(nodes() - 1));
    for (std::uint32_t p = first_port(from); p < first_port(from + 1); ++p)
        if (links_[p].to == to) return p;
    return none;
}

std::string Fabric::name(std::uint32_t node) const {
    if (node < hosts_) return "host " + std::to_string(node);
    node -= hosts_;
    if (!regular_) return "switch " + std::to_string(node);
    const std::uint32_t edges = clos_.pods * clos_.edges, aggregations = clos_.pods * clos_.aggregations;
    if (node < edges) return "edge " + std::to_string(node);
    if (node < edges + aggregations) return "aggregation " + std::to_string(node - edges);
    return "core " + std::to_string(node - edges - aggregations);
}

}  // namespace dlcp::sim

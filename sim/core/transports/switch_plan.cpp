// The leaves of a job, the root above them, the ports between, and the job as each of them is told it.
#include "sim/core/transports/switch_plan.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

namespace dlcp::sim {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::uint16_t local_port(const Fabric& fabric, std::uint32_t node, std::uint32_t port) {
    return static_cast<std::uint16_t>(port - fabric.first_port(node));
}

// Links from a switch to all others, by node; `none` where there is no way over switches.
std::vector<std::uint32_t> links_from(const Fabric& fabric, std::uint32_t from) {
    std::vector<std::uint32_t> links(fabric.nodes(), none);
    std::vector<std::uint32_t> reached = {from};
    links[from] = 0;
    for (std::size_t i = 0; i < reached.size(); ++i) {  // grows as it goes
        const std::uint32_t node = reached[i];
        for (std::uint32_t port = fabric.first_port(node); port < fabric.first_port(node + 1); ++port) {
            const std::uint32_t to = fabric.link(port).to;
            if (to < fabric.hosts() || links[to] != none) continue;
            links[to] = links[node] + 1;
            reached.push_back(to);
        }
    }
    return links;
}

// The node of the switch above these.
std::uint32_t root_above(const Fabric& fabric, const std::vector<std::uint32_t>& leaves) {
    struct Distance {
        std::uint32_t most = 0;
        std::uint64_t sum = 0;
        bool usable = true;
    };
    std::vector<Distance> of(fabric.nodes());
    for (const std::uint32_t leaf : leaves) {
        const std::vector<std::uint32_t> links = links_from(fabric, leaf);
        for (std::uint32_t node = fabric.hosts(); node < fabric.nodes(); ++node) {
            of[node].usable = of[node].usable && links[node] != none && links[node] != 0;
            of[node].most = std::max(of[node].most, links[node]);
            of[node].sum += links[node];
        }
    }
    std::uint32_t best = none;
    for (std::uint32_t node = fabric.hosts(); node < fabric.nodes(); ++node) {
        if (!of[node].usable) continue;
        if (best == none || std::tie(of[node].most, of[node].sum) < std::tie(of[best].most, of[best].sum))
            best = node;
    }
    if (best == none)
        refuse("ranks are at " + std::to_string(leaves.size()) +
               " switches, and no switch without ranks is linked to all of them; accepted: one above them that "
               "adds their sums");
    return best;
}

// Of a switch, the first port one link nearer to where `links` counts from.
std::uint32_t port_nearer(const Fabric& fabric, const std::vector<std::uint32_t>& links, std::uint32_t node) {
    for (std::uint32_t port = fabric.first_port(node); port < fabric.first_port(node + 1); ++port) {
        const std::uint32_t to = fabric.link(port).to;
        if (to >= fabric.hosts() && links[to] + 1 == links[node]) return port;
    }
    throw std::logic_error("a switch has no way to the one above");
}

switching::Participant participant(std::uint16_t port, std::uint32_t ip, std::uint32_t job) {
    return {.port = port, .mac = mac_of(ip), .ip = ip, .udp_port = udp_port_of(job)};
}

// The leaves with their workers, and where each rank is.
void place_ranks(SwitchPlan& plan, const Fabric& fabric, const switching::AggregationJob& job,
                 const std::vector<std::uint32_t>& members) {
    for (const std::uint32_t host : members) {
        if (host >= fabric.hosts())
            refuse("a rank is on host " + std::to_string(host) + "; accepted: hosts 0 to " +
                   std::to_string(fabric.hosts() - 1));
        const std::uint32_t node = fabric.edge_of(host);
        const std::uint32_t index = node - fabric.hosts();
        auto leaf = std::find_if(plan.adders.begin(), plan.adders.end(),
                                 [index](const SwitchPlan::Adder& adder) { return adder.index == index; });
        if (leaf == plan.adders.end()) {
            plan.adders.push_back({index, job});
            leaf = plan.adders.end() - 1;
            leaf->job.hub = participant(0, switch_ip(index), job.job);
        }
        plan.places.push_back({static_cast<std::uint32_t>(leaf - plan.adders.begin()),
                               static_cast<std::uint32_t>(leaf->job.workers.size())});
        leaf->job.workers.push_back(
            participant(local_port(fabric, node, fabric.reverse(host)), host_ip(host), job.job));
        if (leaf->job.workers.size() > aggregation::max_workers)
            refuse("more ranks are at " + fabric.name(node) + " than it can add; accepted: up to " +
                   std::to_string(aggregation::max_workers) + " at a switch");
    }
}

// The level above: the root with the leaves as its workers, and the way there and back.
void place_root(SwitchPlan& plan, const Fabric& fabric, const switching::AggregationJob& job) {
    std::vector<std::uint32_t> leaves;
    for (const SwitchPlan::Adder& leaf : plan.adders) leaves.push_back(fabric.hosts() + leaf.index);
    if (leaves.size() > aggregation::max_workers)
        refuse("ranks are at " + std::to_string(leaves.size()) + " switches; accepted: up to " +
               std::to_string(aggregation::max_workers) + " below one that adds their sums");
    const std::uint32_t root = root_above(fabric, leaves);
    const std::uint32_t root_index = root - fabric.hosts();
    const std::vector<std::uint32_t> links = links_from(fabric, root);
    SwitchPlan::Adder above{root_index, job};
    above.job.hub = participant(0, switch_ip(root_index), job.job);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
        const std::uint32_t leaf_ip = switch_ip(plan.adders[i].index);
        std::uint32_t arrives = none;  // the root's port towards this leaf
        for (std::uint32_t node = leaves[i]; node != root;) {
            const std::uint32_t up = port_nearer(fabric, links, node);
            const std::uint32_t down = fabric.reverse(up);
            const std::uint32_t next = fabric.link(up).to;
            plan.routes.push_back({node - fabric.hosts(), above.job.hub.ip, up});
            plan.routes.push_back({next - fabric.hosts(), leaf_ip, down});
            node = next;
            arrives = down;
        }
        const std::uint16_t up = local_port(fabric, leaves[i], port_nearer(fabric, links, leaves[i]));
        plan.adders[i].job.upper = switching::UpperSwitch{.hub = participant(up, above.job.hub.ip, job.job),
                                                          .own = participant(up, leaf_ip, job.job),
                                                          .worker = static_cast<std::uint8_t>(i)};
        above.job.workers.push_back(participant(local_port(fabric, root, arrives), leaf_ip, job.job));
    }
    plan.adders.push_back(std::move(above));
}

}  // namespace

SwitchPlan plan_switch_sums(const Fabric& fabric, std::uint32_t job_number,
                            const std::vector<std::uint32_t>& members, std::uint16_t slots, std::uint32_t lanes) {
    if (members.size() < 2 || members.size() > aggregation::max_ranks)
        refuse(std::to_string(members.size()) + " ranks; accepted where switches add: 2 to " +
               std::to_string(aggregation::max_ranks));
    if (fabric.switches() > most_switches)
        refuse("a fabric of " + std::to_string(fabric.switches()) +
               " switches; accepted where switches add: up to " + std::to_string(most_switches));
    switching::AggregationJob job;
    job.job = job_number;
    job.slots = slots;
    job.lanes = lanes;
    job.hub_is_here = true;
    SwitchPlan plan;
    place_ranks(plan, fabric, job, members);
    if (plan.adders.size() > 1) place_root(plan, fabric, job);
    return plan;
}

}  // namespace dlcp::sim

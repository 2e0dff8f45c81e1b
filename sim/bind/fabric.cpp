// Fabrics and switch policies. Bad values raise ValueError (std::invalid_argument), naming the accepted range.
#include "sim/core/fabric.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "sim/bind/bind.hpp"
#include "switch/policy.hpp"

namespace dlcp::sim::bind {
namespace {

using switching::PathChoice;
using switching::Policy;

constexpr std::pair<const char*, PathChoice> path_choices[] = {
    {"flow_hash", PathChoice::flow_hash},     {"path_id", PathChoice::path_id},   {"random", PathChoice::random},
    {"round_robin", PathChoice::round_robin}, {"adaptive", PathChoice::adaptive},
};

std::string path_choice(const Policy& policy) {
    for (const auto& [name, value] : path_choices)
        if (value == policy.path_choice) return name;
    return "";
}

void set_path_choice(Policy& policy, const std::string& wanted) {
    for (const auto& [name, value] : path_choices)
        if (wanted == name) {
            policy.path_choice = value;
            return;
        }
    throw std::invalid_argument("path_choice is \"" + wanted +
                                "\"; accepted: flow_hash, path_id, random, round_robin, adaptive");
}

using Bytes = std::uint32_t;

}  // namespace

void bind_fabric(nb::module_& m) {
    nb::class_<Clos>(m, "Clos").def(
        "__init__",
        [](Clos* self, std::uint32_t pods, std::uint32_t edges, std::uint32_t hosts, std::uint32_t aggregations,
           std::uint32_t cores, std::uint64_t host_rate_bps, std::uint64_t edge_rate_bps,
           std::uint64_t core_rate_bps, std::int64_t host_delay_ps, std::int64_t edge_delay_ps,
           std::int64_t core_delay_ps) {
            new (self)
                Clos{pods,          edges,         hosts,         aggregations,  cores,        host_rate_bps,
                     edge_rate_bps, core_rate_bps, host_delay_ps, edge_delay_ps, core_delay_ps};
        },
        nb::arg("pods"), nb::arg("edges"), nb::arg("hosts"), nb::arg("aggregations"), nb::arg("cores"),
        nb::arg("host_rate_bps"), nb::arg("edge_rate_bps"), nb::arg("core_rate_bps"), nb::arg("host_delay_ps"),
        nb::arg("edge_delay_ps"), nb::arg("core_delay_ps"));

    using Cable = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::int64_t>;
    nb::class_<Fabric>(m, "Fabric")
        .def(nb::init<const Clos&>(), nb::arg("clos"))
        .def(
            "__init__",
            [](Fabric* self, std::uint32_t hosts, std::uint32_t switches, const std::vector<Cable>& cables,
               const std::vector<std::uint32_t>& regions) {
                std::vector<Link> links;
                links.reserve(cables.size());
                for (const auto& [from, to, rate_bps, delay_ps] : cables)
                    links.push_back({from, to, rate_bps, delay_ps});
                new (self) Fabric(hosts, switches, links, regions);
            },
            nb::arg("hosts"), nb::arg("switches"), nb::arg("cables"),
            nb::arg("regions") = std::vector<std::uint32_t>())
        .def_prop_ro("hosts", &Fabric::hosts)
        .def_prop_ro("switches", &Fabric::switches)
        .def_prop_ro("ports", &Fabric::ports)
        .def(
            "link",
            [](const Fabric& self, std::uint32_t port) {
                if (port >= self.ports())
                    throw std::invalid_argument("port is " + std::to_string(port) + "; accepted: 0 to " +
                                                std::to_string(self.ports() - 1));
                const Link& link = self.link(port);
                return Cable{link.from, link.to, link.rate_bps, link.delay_ps};
            },
            nb::arg("port"))
        .def(
            "port_between",
            [](const Fabric& self, std::uint32_t from, std::uint32_t to) {
                const std::uint32_t port = self.port_between(from, to);
                return port == none ? std::int64_t{-1} : std::int64_t{port};
            },
            nb::arg("source"), nb::arg("target"))
        .def(
            "first_port",
            [](const Fabric& self, std::uint32_t node) {
                if (node > self.nodes())
                    throw std::invalid_argument("node is " + std::to_string(node) + "; accepted: 0 to " +
                                                std::to_string(self.nodes()));
                return self.first_port(node);
            },
            nb::arg("node"))
        .def(
            "reverse",
            [](const Fabric& self, std::uint32_t port) {
                if (port >= self.ports())
                    throw std::invalid_argument("port is " + std::to_string(port) + "; accepted: 0 to " +
                                                std::to_string(self.ports() - 1));
                return self.reverse(port);
            },
            nb::arg("port"))
        .def("set_rate", &Fabric::set_rate, nb::arg("port"), nb::arg("rate_bps"))
        .def(
            "name",
            [](const Fabric& self, std::uint32_t node) {
                if (node >= self.nodes())
                    throw std::invalid_argument("node is " + std::to_string(node) + "; accepted: 0 to " +
                                                std::to_string(self.nodes() - 1));
                return self.name(node);
            },
            nb::arg("node"))
        .def(
            "columns",
            [](const Fabric& self) {
                std::vector<std::uint32_t> from, to;
                std::vector<std::uint64_t> rate_bps;
                std::vector<std::int64_t> delay_ps;
                for (std::uint32_t p = 0; p < self.ports(); ++p) {
                    const Link& link = self.link(p);
                    from.push_back(link.from);
                    to.push_back(link.to);
                    rate_bps.push_back(link.rate_bps);
                    delay_ps.push_back(link.delay_ps);
                }
                nb::dict d;
                d["source"] = array(std::move(from));
                d["target"] = array(std::move(to));
                d["rate_bps"] = array(std::move(rate_bps));
                d["delay_ps"] = array(std::move(delay_ps));
                return d;
            },
            "All links, by port: source, target, rate_bps, delay_ps.");

    nb::class_<Policy>(m, "Policy")
        .def(nb::init<>())
        .def(
            "set_thresholds",
            [](Policy& self, std::uint32_t traffic_class, std::uint32_t level, Bytes mark_from, Bytes mark_full,
               std::uint16_t mark_ratio, Bytes trim_above, Bytes drop_above) {
                if (traffic_class >= switching::traffic_classes)
                    throw std::invalid_argument("traffic_class is " + std::to_string(traffic_class) +
                                                "; accepted: 0 to 7");
                if (level >= switching::levels)
                    throw std::invalid_argument("level is " + std::to_string(level) + "; accepted: 0 to 8");
                self.classes[traffic_class].level[level] = {mark_from, mark_full, mark_ratio, trim_above,
                                                            drop_above};
            },
            nb::arg("traffic_class"), nb::arg("level"), nb::kw_only(), nb::arg("mark_from") = switching::never,
            nb::arg("mark_full") = switching::never, nb::arg("mark_ratio") = UINT16_MAX,
            nb::arg("trim_above") = switching::never, nb::arg("drop_above") = switching::never)
        .def_prop_rw("path_choice", &path_choice, &set_path_choice)
        .def_rw("port_bytes", &Policy::port_bytes)
        .def_rw("shared_bytes", &Policy::shared_bytes)
        .def_rw("shared_alpha_log2", &Policy::shared_alpha_log2)
        .def_rw("trimmed_bytes", &Policy::trimmed_bytes)
        .def_rw("trimmed_class", &Policy::trimmed_class)
        .def_rw("trimmed_run_packets", &Policy::trimmed_run_packets)
        .def_rw("pause_above_bytes", &Policy::pause_above_bytes)
        .def_rw("resume_below_bytes", &Policy::resume_below_bytes)
        .def("validate", &Policy::validate);
}

}  // namespace dlcp::sim::bind

// One run. Columns of flows, tasks and edges go in as arrays of equal length; what was found comes out as arrays.
#include "sim/core/simulation.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include "sim/bind/bind.hpp"
#include "sim/core/domain.hpp"

namespace dlcp::sim::bind {
namespace {

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::size_t equal_lengths(std::initializer_list<std::size_t> lengths) {
    for (std::size_t length : lengths)
        if (length != *lengths.begin())
            throw std::invalid_argument("columns have " + std::to_string(*lengths.begin()) + " and " +
                                        std::to_string(length) + " entries; accepted: the same number");
    return *lengths.begin();
}

std::uint32_t add_flows(Simulation& self, Column<std::uint32_t> source, Column<std::uint32_t> destination,
                        Column<std::uint64_t> bytes, Column<std::int64_t> start_ps,
                        Column<std::uint8_t> traffic_class, Column<double> loss_ratio,
                        Column<double> critical_ratio, Column<std::int64_t> patience_ps,
                        Column<std::uint32_t> label) {
    const std::size_t count = equal_lengths({source.shape(0), destination.shape(0), bytes.shape(0),
                                             start_ps.shape(0), traffic_class.shape(0), loss_ratio.shape(0),
                                             critical_ratio.shape(0), patience_ps.shape(0), label.shape(0)});
    const auto first = static_cast<std::uint32_t>(self.flows().size());
    for (std::size_t i = 0; i < count; ++i) {
        Flow flow;
        flow.source = source(i);
        flow.destination = destination(i);
        flow.bytes = bytes(i);
        flow.start_ps = start_ps(i);
        flow.traffic_class = traffic_class(i);
        flow.loss_ratio = static_cast<float>(loss_ratio(i));
        flow.critical_ratio = static_cast<float>(critical_ratio(i));
        flow.patience_ps = patience_ps(i);
        flow.label = label(i);
        try {
            self.add_flow(flow);
        } catch (...) {
            self.flows().resize(first);  // all or none
            throw;
        }
    }
    return first;
}

std::uint32_t add_tasks(Simulation& self, Column<std::uint8_t> kind, Column<std::uint32_t> host,
                        Column<std::int64_t> value, Column<std::uint32_t> channel, Column<std::int64_t> priority,
                        Column<std::uint64_t> channel_bytes, Column<std::uint32_t> returned_by) {
    const std::size_t count = equal_lengths({kind.shape(0), host.shape(0), value.shape(0), channel.shape(0),
                                             priority.shape(0), channel_bytes.shape(0), returned_by.shape(0)});
    const std::uint32_t first = self.tasks().tasks();
    for (std::size_t i = 0; i < count; ++i) {
        if (kind(i) > 2) throw std::invalid_argument("kind is " + std::to_string(kind(i)) + "; accepted: 0 to 2");
        if (kind(i) == 0 && value(i) > latest_given_ps)
            throw std::invalid_argument("value is " + std::to_string(value(i)) +
                                        "; accepted: computations of 0 to 2^55 ps");
        Task task;
        task.kind = static_cast<TaskKind>(kind(i));
        task.host = host(i);
        task.value = value(i);
        task.channel = channel(i);
        task.priority = priority(i);
        task.channel_bytes = channel_bytes(i);
        task.returned_by = returned_by(i);
        self.tasks().add_task(task);
    }
    return first;
}

void add_edges(Simulation& self, Column<std::uint32_t> before, Column<std::uint32_t> after,
               Column<std::uint8_t> when) {
    const std::size_t count = equal_lengths({before.shape(0), after.shape(0), when.shape(0)});
    for (std::size_t i = 0; i < count; ++i) {
        if (when(i) > 1) throw std::invalid_argument("when is " + std::to_string(when(i)) + "; accepted: 0, 1");
        self.tasks().add_edge(before(i), after(i), static_cast<After>(when(i)));
    }
}

using FaultTuple = std::tuple<std::int64_t, std::uint32_t, std::string, double, double, double>;

void add_faults(Simulation& self, const std::vector<FaultTuple>& faults) {
    static constexpr std::pair<const char*, FaultKind> kinds[] = {
        {"down", FaultKind::down},      {"up", FaultKind::up},     {"loss", FaultKind::loss},
        {"burst", FaultKind::burst},    {"rate", FaultKind::rate}, {"delay", FaultKind::delay},
        {"reroute", FaultKind::reroute}};
    for (const auto& [at_ps, port, kind, value, value2, value3] : faults) {
        const auto* found =
            std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) { return kind == k.first; });
        if (found == std::end(kinds))
            throw std::invalid_argument("a fault's kind is \"" + kind +
                                        "\"; accepted: down, up, loss, burst, rate, delay, reroute");
        self.add_fault({at_ps, port, found->second, value, value2, value3});
    }
}

template <class T, class Get>
nb::ndarray<nb::numpy, T> flow_column(const Simulation& self, Get get) {
    std::vector<T> values;
    values.reserve(self.flows().size());
    // Before the run nothing has happened to any flow.
    for (std::size_t i = 0; i < self.flows().size(); ++i)
        values.push_back(static_cast<T>(get(i < self.results().size() ? self.results()[i] : FlowResult{})));
    return array(std::move(values));
}

nb::dict flow_results(const Simulation& self) {
    nb::dict d;
    d["delivered_ps"] = flow_column<std::int64_t>(self, [](const FlowResult& r) { return r.delivered_ps; });
    d["delivered_bytes"] = flow_column<std::uint64_t>(self, [](const FlowResult& r) { return r.delivered_bytes; });
    d["abandoned_bytes"] = flow_column<std::uint64_t>(self, [](const FlowResult& r) { return r.abandoned_bytes; });
    d["started_ps"] = flow_column<std::int64_t>(self, [](const FlowResult& r) { return r.started_ps; });
    d["acknowledged_ps"] = flow_column<std::int64_t>(self, [](const FlowResult& r) { return r.acknowledged_ps; });
    d["sent_packets"] = flow_column<std::uint64_t>(self, [](const FlowResult& r) { return r.sent_packets; });
    d["retransmitted_packets"] =
        flow_column<std::uint64_t>(self, [](const FlowResult& r) { return r.retransmitted_packets; });
    d["timeouts"] = flow_column<std::uint64_t>(self, [](const FlowResult& r) { return r.timeouts; });
    return d;
}

nb::ndarray<nb::numpy, std::int64_t> flow_bounds(const Simulation& self) {
    std::vector<std::int64_t> bounds;
    for (const Flow& flow : self.flows()) bounds.push_back(self.ideal_ps(flow));
    return array(std::move(bounds));
}

// Per port and class: get(port, class).
template <class Get>
nb::ndarray<nb::numpy, std::uint64_t> port_column(const Simulation& self, Get get) {
    const std::uint32_t ports = self.fabric().ports();
    std::vector<std::uint64_t> values;
    values.reserve(std::size_t{ports} * switching::traffic_classes);
    for (std::uint32_t p = 0; p < ports; ++p)
        for (std::uint32_t c = 0; c < switching::traffic_classes; ++c) values.push_back(get(p, c));
    return array(std::move(values), {ports, switching::traffic_classes});
}

nb::dict port_counters(const Simulation& self) {
    const auto packets = [&self](auto member) {
        return port_column(self,
                           [&](std::uint32_t p, std::uint32_t c) { return self.packet_counters(p, c).*member; });
    };
    const auto events = [&self](auto member) {
        return port_column(self,
                           [&](std::uint32_t p, std::uint32_t c) { return self.event_counters(p, c).*member; });
    };
    nb::dict d;
    d["packets_in"] = packets(&PacketCounters::packets_in);
    d["packets_sent"] = packets(&PacketCounters::packets_sent);
    d["bytes_sent"] = packets(&PacketCounters::bytes_sent);
    d["packets_dropped"] = events(&EventCounters::packets_dropped);
    d["packets_marked"] = events(&EventCounters::packets_marked);
    d["packets_trimmed"] = events(&EventCounters::packets_trimmed);
    d["packets_lost"] = events(&EventCounters::packets_lost);
    d["pauses"] = events(&EventCounters::pauses);
    d["max_depth_bytes"] =
        port_column(self, [&self](std::uint32_t p, std::uint32_t c) { return self.max_depth_bytes(p, c); });
    return d;
}

nb::dict samples(const Simulation& self) {
    Recorder::Series all = self.recorder().series();
    const std::size_t width = all.ports.size(), moments = all.time_ps.size();
    nb::dict d;
    d["time_ps"] = array(std::move(all.time_ps));
    d["ports"] = array(std::move(all.ports));
    d["depth_bytes"] = array(std::move(all.depth_bytes), {moments, width, switching::traffic_classes});
    d["bytes_sent"] = array(std::move(all.bytes_sent), {moments, width, switching::traffic_classes});
    return d;
}

nb::dict trace_records(const Simulation& self) {
    const std::vector<PacketRecord> all = self.recorder().packets();
    std::vector<std::int64_t> time_ps;
    std::vector<std::uint32_t> port, flow, number, wire_bytes, source, destination;
    std::vector<std::uint8_t> event, type, traffic_class, flags, headers;
    std::vector<std::uint16_t> path;
    for (const PacketRecord& r : all) {
        const Packet& p = r.packet;
        time_ps.push_back(r.time_ps);
        port.push_back(r.port);
        event.push_back(static_cast<std::uint8_t>(r.event));
        flow.push_back(p.flow);
        type.push_back(p.type);
        number.push_back(p.number);
        wire_bytes.push_back(p.wire_bytes);
        traffic_class.push_back(p.traffic_class);
        flags.push_back(
            static_cast<std::uint8_t>(p.ecn_capable | p.congestion_marked << 1 | p.trimmed << 2 | p.reverse << 3));
        path.push_back(p.path);
        destination.push_back(p.destination);
        const bool known = p.flow < self.flows().size();
        source.push_back(!known      ? none
                         : p.reverse ? self.flows()[p.flow].destination
                                     : self.flows()[p.flow].source);
        headers.insert(headers.end(), std::begin(r.header), std::end(r.header));
    }
    nb::dict d;
    d["time_ps"] = array(std::move(time_ps));
    d["port"] = array(std::move(port));
    d["event"] = array(std::move(event));
    d["flow"] = array(std::move(flow));
    d["type"] = array(std::move(type));
    d["number"] = array(std::move(number));
    d["wire_bytes"] = array(std::move(wire_bytes));
    d["traffic_class"] = array(std::move(traffic_class));
    d["flags"] = array(std::move(flags));
    d["path"] = array(std::move(path));
    d["source"] = array(std::move(source));
    d["destination"] = array(std::move(destination));
    d["headers"] = array(std::move(headers), {all.size(), 64});
    return d;
}

nb::dict task_times(const Simulation& self) {
    std::vector<std::int64_t> ready, started, finished;
    for (const TaskTimes& t : self.tasks().times()) {
        ready.push_back(t.ready_ps);
        started.push_back(t.started_ps);
        finished.push_back(t.finished_ps);
    }
    nb::dict d;
    d["ready_ps"] = array(std::move(ready));
    d["started_ps"] = array(std::move(started));
    d["finished_ps"] = array(std::move(finished));
    return d;
}

constexpr const char* kind_names[] = {"whole", "number", "flag", "choice"};

std::unique_ptr<Simulation> make(const Fabric& fabric, const switching::Policy& policy,
                                 const std::string& transport, const std::map<std::string, double>& parameters,
                                 std::uint64_t seed, std::uint32_t threads, const std::string& discipline,
                                 bool check_invariants, const std::string& event_queue, const std::string& hosts) {
    SimulationSettings settings;
    settings.seed = seed;
    settings.threads = threads;
    settings.check_invariants = check_invariants;
    if (discipline == "least_rank")
        settings.discipline = Discipline::least_rank;
    else if (discipline != "strict_priority")
        throw std::invalid_argument("discipline is \"" + discipline + "\"; accepted: strict_priority, least_rank");
    if (event_queue == "heap")
        settings.heap_only = true;
    else if (event_queue != "wheel")
        throw std::invalid_argument("event_queue is \"" + event_queue + "\"; accepted: wheel, heap");
    settings.host_costs = HostCosts::named(hosts, transport);
    return std::make_unique<Simulation>(fabric, policy, make_transport(transport, parameters), settings);
}

}  // namespace

void bind_simulation(nb::module_& m) {
    m.attr("NONE") = none;
    nb::class_<TransportSetting>(m, "TransportSetting", "One row of a transport's table of settings.")
        .def_ro("name", &TransportSetting::name)
        .def_prop_ro("kind", [](const TransportSetting& self) { return kind_names[static_cast<int>(self.kind)]; })
        .def_ro("default", &TransportSetting::otherwise)
        .def_ro("minimum", &TransportSetting::minimum)
        .def_ro("maximum", &TransportSetting::maximum)
        .def_ro("choices", &TransportSetting::choices)
        .def_ro("sentence", &TransportSetting::sentence);
    m.def("transport_names", &TransportKind::names);
    m.def("host_names", &HostCosts::names);
    m.def(
        "transport_settings", [](const std::string& name) { return TransportKind::named(name).settings(); },
        nb::arg("name"));
    m.def(
        "check_transport",
        [](const std::string& name, const Parameters& parameters) { TransportKind::named(name).make(parameters); },
        nb::arg("name"), nb::arg("parameters"));
    nb::class_<Simulation>(m, "Simulation")
        .def(nb::new_(&make), nb::arg("fabric"), nb::arg("policy"), nb::arg("transport"), nb::arg("parameters"),
             nb::kw_only(), nb::arg("seed") = 1, nb::arg("threads") = 1, nb::arg("discipline") = "strict_priority",
             nb::arg("check_invariants") = false, nb::arg("event_queue") = "wheel", nb::arg("hosts") = "free")
        .def("add_flows", &add_flows, nb::arg("source"), nb::arg("destination"), nb::arg("bytes"),
             nb::arg("start_ps"), nb::arg("traffic_class"), nb::arg("loss_ratio"), nb::arg("critical_ratio"),
             nb::arg("patience_ps"), nb::arg("label"),
             "Columns of uint32, uint32, uint64, int64, uint8, double, double, int64, uint32.")
        .def("add_tasks", &add_tasks, nb::arg("kind"), nb::arg("host"), nb::arg("value"), nb::arg("channel"),
             nb::arg("priority"), nb::arg("channel_bytes"), nb::arg("returned_by"),
             "Columns of uint8, uint32, int64, uint32, int64, uint64, uint32.")
        .def("add_edges", &add_edges, nb::arg("before"), nb::arg("after"), nb::arg("when"),
             "Columns of uint32, uint32, uint8.")
        .def(
            "add_channel",
            [](Simulation& self, std::uint64_t credit_bytes, bool together) {
                return self.tasks().add_channel(credit_bytes, together);
            },
            nb::arg("credit_bytes"), nb::arg("together") = false)
        .def("add_faults", &add_faults, nb::arg("faults"))
        .def("sample", &Simulation::sample, nb::arg("ports"), nb::arg("interval_ps"))
        .def("trace", &Simulation::trace, nb::arg("ports"), nb::arg("limit"))
        .def("run", &Simulation::run, nb::arg("until_ps") = -1, nb::arg("wall_s") = -1.0,
             nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("now_ps", &Simulation::now_ps)
        .def_prop_ro("events", &Simulation::events)
        .def_prop_ro("hops", &Simulation::hops)
        .def_prop_ro("flows_finished", &Simulation::flows_finished)
        .def_prop_ro("packets_unroutable", &Simulation::packets_unroutable)
        .def_prop_ro("packets_dropped_at_hosts", &Simulation::packets_dropped_at_hosts)
        .def_prop_ro("payload_bytes", [](Simulation& self) { return self.transport().payload_bytes(); })
        .def_prop_ro("header_bytes", [](Simulation& self) { return self.transport().header_bytes(); })
        .def_prop_ro("cpu_s", &Simulation::cpu_s)
        .def("base_rtt_ps", &Simulation::base_rtt_ps, nb::arg("source"), nb::arg("destination"),
             nb::arg("data_bytes"), nb::arg("ack_bytes"))
        .def("flow_bounds", &flow_bounds)
        .def("flow_results", &flow_results)
        .def("port_counters", &port_counters)
        .def("samples", &samples)
        .def("trace_records", &trace_records)
        .def("task_times", &task_times)
        .def("transport_counters", [](Simulation& self) { return self.transport().counters(); });
}

}  // namespace dlcp::sim::bind

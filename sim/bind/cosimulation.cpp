// Collectives that the shipping executor runs on simulated hosts, with virtual memory or with a program's own.
//
// Memory crosses as an address and a length; whoever gives an address keeps it until the collective is over. Only a
// simulation whose transport is "dlcp" can be asked.
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind/collective_values.hpp"
#include "sim/bind/bind.hpp"
#include "sim/core/transports/dlcp.hpp"

namespace dlcp::sim::bind {
namespace {

using dlcp::bind::BoundLossRules;
using dlcp::bind::BoundSchedule;
using dlcp::bind::ImportanceBytes;

DlcpTransport& transport_of(Simulation& simulation) {
    if (auto* transport = dynamic_cast<DlcpTransport*>(&simulation.transport())) return *transport;
    throw std::invalid_argument("collectives are run by transport \"dlcp\" only; build them of flows and tasks");
}

// The engine's settings by the library's names: those of dlcp's simulated hosts, before what follows from the fabric, and
// the library's defaults.
std::map<std::string, std::pair<SettingValue, SettingValue>> engine_settings(const Parameters& parameters) {
    const std::unique_ptr<Transport> transport = make_transport("dlcp", parameters);
    const EndpointConfig& simulated = dynamic_cast<const DlcpTransport&>(*transport).config();
    const EndpointConfig shipped;
    std::map<std::string, std::pair<SettingValue, SettingValue>> found;
    const auto add = [&](const SettingRow<EndpointConfig>& row) {
        found.emplace(row.setting.name, std::pair(row.get(simulated, row.setting), row.get(shipped, row.setting)));
    };
    for (const SettingRow<EndpointConfig>& row : protocol_settings) add(row);
    for (const SettingRow<EndpointConfig>& row : endpoint_settings) add(row);
    // What the runtime sets from options of its own.
    const auto add_whole = [&](const char* name, std::uint64_t ours, std::uint64_t theirs) {
        found.emplace(name, std::pair(static_cast<std::int64_t>(ours), static_cast<std::int64_t>(theirs)));
    };
    add_whole("max_datagram_bytes", simulated.max_datagram_bytes, shipped.max_datagram_bytes);
    add_whole("receive_buffer_bytes", simulated.receive_buffer.value, shipped.receive_buffer.value);
    found.emplace("announce_unexpected", std::pair(simulated.announce_unexpected, shipped.announce_unexpected));
    found.emplace("virtual_payload", std::pair(simulated.virtual_payload, shipped.virtual_payload));
    return found;
}

// (address, bytes), address 0: virtual.
using Memory = std::vector<std::pair<std::uintptr_t, std::uint64_t>>;

std::vector<ChunkMemory> memory_of(const Memory& given) {
    std::vector<ChunkMemory> out;
    for (const auto& [address, bytes] : given) out.push_back({reinterpret_cast<std::uint8_t*>(address), bytes});
    return out;
}

// `loss`: of every rank's lossy messages, but for their importance: that is by rank, or drawn so that `critical_ratio` of
// the blocks are critical.
std::uint32_t add_collective(Simulation& simulation, const std::vector<std::uint32_t>& members,
                             const std::vector<const BoundSchedule*>& schedules, const Memory& inputs,
                             const Memory& outputs, std::uint32_t traffic_class, std::uint32_t average_over,
                             const BoundLossRules* loss, double critical_ratio,
                             std::optional<nb::list> importance) {
    CollectiveSpec spec;
    spec.members = members;
    for (const BoundSchedule* each : schedules) spec.schedules.push_back(each->schedule);
    spec.inputs = memory_of(inputs);
    spec.outputs = memory_of(outputs);
    if (traffic_class > 6)
        throw std::invalid_argument("traffic_class is " + std::to_string(traffic_class) + "; accepted: 0 to 6");
    spec.traffic_class = static_cast<std::uint8_t>(traffic_class);
    spec.average_over = average_over;
    spec.critical_ratio = critical_ratio;
    if (loss != nullptr) {
        spec.loss_ratio = loss->rules.loss_ratio;
        spec.patience = loss->rules.patience;
        spec.deadline = loss->rules.deadline;
        spec.rescale = loss->rules.rescale;
    }
    if (importance) {
        for (const nb::handle rank : *importance) {
            auto& of_rank = spec.importance.emplace_back();
            for (const nb::handle to : nb::cast<nb::list>(rank)) {
                auto& blocks = of_rank.emplace_back();
                if (to.is_none()) continue;
                const auto given = nb::cast<ImportanceBytes>(to);
                blocks.assign(given.data(), given.data() + given.size());
            }
        }
    }
    return transport_of(simulation).add_collective(std::move(spec));
}

std::uint32_t add_switch_sum(Simulation& simulation, const std::vector<std::uint32_t>& members,
                             std::uint64_t nbytes, std::uint32_t slots, std::uint32_t lanes, std::uint32_t bits) {
    return transport_of(simulation)
        .add_switch_sum(simulation.fabric(),
                        {.members = members, .bytes = nbytes, .slots = slots, .lanes = lanes, .bits = bits});
}

void start_collective(Simulation& simulation, std::uint32_t index, const std::vector<std::int64_t>& at_ps) {
    DlcpTransport& transport = transport_of(simulation);
    if (at_ps.size() != transport.ranks(index))
        throw std::invalid_argument("at_ps has " + std::to_string(at_ps.size()) +
                                    " entries; accepted: one per rank, " + std::to_string(transport.ranks(index)));
    for (std::uint32_t rank = 0; rank < at_ps.size(); ++rank) {
        if (at_ps[rank] < simulation.now_ps())
            throw std::invalid_argument("at_ps is " + std::to_string(at_ps[rank]) + "; accepted: from now on, " +
                                        std::to_string(simulation.now_ps()));
    }
    for (std::uint32_t rank = 0; rank < at_ps.size(); ++rank)
        transport.start_collective_at(simulation, index, rank, at_ps[rank]);
}

std::size_t collective_ranks_over(Simulation& simulation, std::uint32_t index) {
    const DlcpTransport& transport = transport_of(simulation);
    std::size_t over = 0;
    for (std::uint32_t rank = 0; rank < transport.ranks(index); ++rank)
        over += transport.outcome(index, rank).finished_ps >= 0;
    return over;
}

nb::dict collective_results(Simulation& simulation, std::uint32_t index) {
    const DlcpTransport& transport = transport_of(simulation);
    std::vector<std::int64_t> started, finished;
    std::vector<std::uint64_t> sent, received, retransmitted, abandoned;
    const std::uint32_t block_bytes = transport.payload_bytes();
    std::vector<std::uint64_t> retransmitted_packets;
    nb::list errors;
    for (std::uint32_t rank = 0; rank < transport.ranks(index); ++rank) {
        const CollectiveOutcome& outcome = transport.outcome(index, rank);
        started.push_back(outcome.started_ps);
        finished.push_back(outcome.finished_ps);
        sent.push_back(outcome.result.sent_bytes);
        received.push_back(outcome.result.received_bytes);
        retransmitted.push_back(outcome.result.retransmitted_bytes);
        retransmitted_packets.push_back((outcome.result.retransmitted_bytes + block_bytes - 1) / block_bytes);
        std::uint64_t missing = 0;
        for (const CollectiveResult::Abandoned& each : outcome.result.abandoned)
            if (!each.sent) missing += each.abandoned_bytes;
        abandoned.push_back(missing);
        const CollectiveError error = outcome.result.error;
        errors.append(error == CollectiveError::none ? nb::none() : nb::object(nb::str(name(error))));
    }
    nb::dict d;
    d["started_ps"] = array(std::move(started));
    d["finished_ps"] = array(std::move(finished));
    d["sent_bytes"] = array(std::move(sent));
    d["received_bytes"] = array(std::move(received));
    d["retransmitted_bytes"] = array(std::move(retransmitted));
    d["retransmitted_packets"] = array(std::move(retransmitted_packets));
    d["abandoned_bytes"] = array(std::move(abandoned));
    d["error"] = errors;
    return d;
}

CollectiveResult collective_result(Simulation& simulation, std::uint32_t index, std::uint32_t rank) {
    return transport_of(simulation).outcome(index, rank).result;
}

}  // namespace

void bind_cosimulation(nb::module_& m) {
    // Where the classes of schedules, loss rules and results are bound.
    nb::module_::import_("dlcp._native");
    m.def("engine_settings", &engine_settings, nb::arg("parameters"));
    m.def("add_collective", &add_collective, nb::arg("simulation"), nb::arg("members"), nb::arg("schedules"),
          nb::arg("inputs"), nb::arg("outputs"), nb::kw_only(), nb::arg("traffic_class") = 0,
          nb::arg("average_over") = 0, nb::arg("loss").none() = nb::none(), nb::arg("critical_ratio") = 1.0,
          nb::arg("importance") = nb::none());
    m.def("add_switch_sum", &add_switch_sum, nb::arg("simulation"), nb::arg("members"), nb::kw_only(),
          nb::arg("nbytes"), nb::arg("slots"), nb::arg("lanes"), nb::arg("bits"));
    m.def(
        "add_collective_group",
        [](Simulation& simulation, const std::vector<std::uint32_t>& members) {
            transport_of(simulation).add_group(members);
        },
        nb::arg("simulation"), nb::arg("members"));
    m.def(
        "keep_open", [](Simulation& simulation) { simulation.keep_open(); }, nb::arg("simulation"));
    m.def("start_collective", &start_collective, nb::arg("simulation"), nb::arg("index"), nb::arg("at_ps"));
    m.def("collective_ranks_over", &collective_ranks_over, nb::arg("simulation"), nb::arg("index"));
    m.def("collective_results", &collective_results, nb::arg("simulation"), nb::arg("index"));
    m.def("collective_result", &collective_result, nb::arg("simulation"), nb::arg("index"), nb::arg("rank"));
    m.def(
        "forget_collective",
        [](Simulation& simulation, std::uint32_t index) { transport_of(simulation).forget_collective(index); },
        nb::arg("simulation"), nb::arg("index"));
    m.def(
        "collective_block_bytes", [](Simulation& simulation) { return transport_of(simulation).payload_bytes(); },
        nb::arg("simulation"));
}

}  // namespace dlcp::sim::bind

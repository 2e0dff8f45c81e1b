// Collectives that the shipping executor runs on simulated hosts, with virtual memory or with a program's own.
//
// Memory crosses as an address and a length; whoever gives an address keeps it until the collective is over. Only a
// simulation whose transport is "dlcp" can be asked.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/bind/bind.hpp"
#include "sim/core/transports/dlcp.hpp"

namespace dlcp::sim::bind {
namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;
using ImportanceBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Of Python's own: the same class is in dlcp._native, as another type.
struct BoundSchedule {
    std::shared_ptr<const Schedule> schedule;
};

DlcpTransport& transport_of(Simulation& simulation) {
    if (auto* transport = dynamic_cast<DlcpTransport*>(&simulation.transport())) return *transport;
    throw std::invalid_argument("collectives are run by transport \"dlcp\" only; build them of flows and tasks");
}

Chunk chunk_of(Pair pair) {
    if (pair.first >= spaces)
        throw std::invalid_argument("space is " + std::to_string(pair.first) + "; accepted: 0 to 2");
    return {static_cast<Space>(pair.first), pair.second};
}

// Operations are (kind, final, peer, message, target, operands, lossy), as dlcp._native takes them.
BoundSchedule make_schedule(std::uint32_t world_size, std::uint32_t rank, std::uint32_t input_chunks,
                            std::uint32_t output_chunks, const std::vector<Pair>& scratch, nb::list ops) {
    std::vector<Chunk> scratch_chunks;
    for (const Pair pair : scratch) scratch_chunks.push_back(chunk_of(pair));
    std::vector<ScheduleOp> plan;
    plan.reserve(ops.size());
    for (const nb::handle each : ops) {
        const auto fields = nb::cast<nb::tuple>(each);
        const auto kind = nb::cast<std::uint32_t>(fields[0]);
        if (fields.size() != 7 || kind > 2)
            throw std::invalid_argument(
                "an operation is (kind 0 to 2, final, peer, message, target, operands, lossy)");
        ScheduleOp op;
        op.kind = static_cast<ScheduleOp::Kind>(kind);
        op.final = nb::cast<bool>(fields[1]);
        op.peer = nb::cast<std::uint32_t>(fields[2]);
        op.message = nb::cast<std::uint32_t>(fields[3]);
        op.target = chunk_of(nb::cast<Pair>(fields[4]));
        for (const Pair pair : nb::cast<std::vector<Pair>>(fields[5])) op.operands.push_back(chunk_of(pair));
        op.lossy = nb::cast<bool>(fields[6]);
        plan.push_back(std::move(op));
    }
    return {std::make_shared<const Schedule>(world_size, rank, input_chunks, output_chunks,
                                             std::move(scratch_chunks), std::move(plan))};
}

// (address, bytes), address 0: virtual.
using Memory = std::vector<std::pair<std::uintptr_t, std::uint64_t>>;

std::vector<ChunkMemory> memory_of(const Memory& given) {
    std::vector<ChunkMemory> out;
    for (const auto& [address, bytes] : given) out.push_back({reinterpret_cast<std::uint8_t*>(address), bytes});
    return out;
}

std::uint32_t add_collective(Simulation& simulation, const std::vector<std::uint32_t>& members, nb::list schedules,
                             const Memory& inputs, const Memory& outputs, std::uint32_t traffic_class,
                             std::uint32_t average_over, double loss_ratio, double critical_ratio,
                             std::int64_t patience_ps, std::int64_t deadline_ps, bool rescale,
                             std::optional<nb::list> importance) {
    CollectiveSpec spec;
    spec.members = members;
    for (const nb::handle each : schedules) spec.schedules.push_back(nb::cast<BoundSchedule&>(each).schedule);
    spec.inputs = memory_of(inputs);
    spec.outputs = memory_of(outputs);
    if (traffic_class > 6)
        throw std::invalid_argument("traffic_class is " + std::to_string(traffic_class) + "; accepted: 0 to 6");
    spec.traffic_class = static_cast<std::uint8_t>(traffic_class);
    spec.average_over = average_over;
    spec.loss_ratio = loss_ratio;
    spec.critical_ratio = critical_ratio;
    spec.patience = patience_ps < 0 ? Duration{-1} : nanoseconds(patience_ps / 1000);
    spec.deadline = nanoseconds(deadline_ps / 1000);
    spec.rescale = rescale;
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
    nb::list errors;
    for (std::uint32_t rank = 0; rank < transport.ranks(index); ++rank) {
        const CollectiveOutcome& outcome = transport.outcome(index, rank);
        started.push_back(outcome.started_ps);
        finished.push_back(outcome.finished_ps);
        sent.push_back(outcome.result.sent_bytes);
        received.push_back(outcome.result.received_bytes);
        retransmitted.push_back(outcome.result.retransmitted_bytes);
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
    d["abandoned_bytes"] = array(std::move(abandoned));
    d["error"] = errors;
    return d;
}

// (sent, peer, chunk index, message_bytes, block_bytes, abandoned_bytes, bitmap of blocks), a message each.
nb::list collective_abandoned(Simulation& simulation, std::uint32_t index, std::uint32_t rank) {
    nb::list out;
    for (const CollectiveResult::Abandoned& each : transport_of(simulation).outcome(index, rank).result.abandoned)
        out.append(nb::make_tuple(each.sent, each.peer, each.chunk.index, each.message_bytes, each.block_bytes,
                                  each.abandoned_bytes, array(std::vector<std::uint64_t>(each.blocks))));
    return out;
}

}  // namespace

void bind_cosimulation(nb::module_& m) {
    nb::class_<BoundSchedule>(m, "Schedule", "What one rank does in a collective, as data.")
        .def(nb::new_(&make_schedule), nb::arg("world_size"), nb::arg("rank"), nb::arg("input_chunks"),
             nb::arg("output_chunks"), nb::arg("scratch"), nb::arg("ops"))
        .def_prop_ro("peers", [](const BoundSchedule& s) { return s.schedule->peers(); });
    m.def(
        "part_bytes",
        [](std::uint64_t nbytes, std::uint32_t parts) {
            std::vector<std::uint64_t> lengths;
            for (const ChunkMemory& part : partition({nullptr, nbytes}, parts, DataType::f32))
                lengths.push_back(part.bytes);
            return lengths;
        },
        nb::arg("nbytes"), nb::arg("parts"));
    m.def("add_collective", &add_collective, nb::arg("simulation"), nb::arg("members"), nb::arg("schedules"),
          nb::arg("inputs"), nb::arg("outputs"), nb::kw_only(), nb::arg("traffic_class") = 0,
          nb::arg("average_over") = 0, nb::arg("loss_ratio") = 0.0, nb::arg("critical_ratio") = 1.0,
          nb::arg("patience_ps") = -1, nb::arg("deadline_ps") = 0, nb::arg("rescale") = false,
          nb::arg("importance") = nb::none());
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
    m.def("collective_abandoned", &collective_abandoned, nb::arg("simulation"), nb::arg("index"), nb::arg("rank"));
    m.def(
        "forget_collective",
        [](Simulation& simulation, std::uint32_t index) { transport_of(simulation).forget_collective(index); },
        nb::arg("simulation"), nb::arg("index"));
    m.def(
        "collective_block_bytes", [](Simulation& simulation) { return transport_of(simulation).payload_bytes(); },
        nb::arg("simulation"));
}

}  // namespace dlcp::sim::bind

#include "bind/collective_values.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "bind/statistics.hpp"

namespace dlcp::bind {
namespace {

// (space, index), as dlcp.transport.schedule.Chunk is.
using ChunkPair = std::pair<std::uint32_t, std::uint32_t>;

Chunk chunk_of(ChunkPair pair) {
    if (pair.first >= spaces)
        throw nb::value_error(("space is " + std::to_string(pair.first) + "; accepted: 0 to 2").c_str());
    return {static_cast<Space>(pair.first), pair.second};
}

// Takes a schedule operation by operation, in its order.
class ScheduleBuilder {
public:
    ScheduleBuilder(std::uint32_t world_size, std::uint32_t rank, std::uint32_t input_chunks,
                    std::uint32_t output_chunks)
        : world_size_(world_size), rank_(rank), input_chunks_(input_chunks), output_chunks_(output_chunks) {}

    void scratch(ChunkPair like) { scratch_.push_back(chunk_of(like)); }
    void send(std::uint32_t peer, std::uint32_t message, ChunkPair source, bool lossy) {
        const Chunk chunk = chunk_of(source);
        operations_.push_back({.kind = ScheduleOp::Kind::send,
                               .lossy = lossy,
                               .peer = peer,
                               .message = message,
                               .target = chunk,
                               .operands = {chunk}});
    }
    void receive(std::uint32_t peer, std::uint32_t message, ChunkPair target, std::optional<ChunkPair> operand,
                 bool final, bool lossy) {
        ScheduleOp op{.kind = ScheduleOp::Kind::receive,
                      .final = final,
                      .lossy = lossy,
                      .peer = peer,
                      .message = message,
                      .target = chunk_of(target)};
        if (operand) op.operands.push_back(chunk_of(*operand));
        operations_.push_back(std::move(op));
    }
    void combine(ChunkPair target, const std::vector<ChunkPair>& operands, bool final) {
        ScheduleOp op{.kind = ScheduleOp::Kind::combine, .final = final, .target = chunk_of(target)};
        for (const ChunkPair& operand : operands) op.operands.push_back(chunk_of(operand));
        operations_.push_back(std::move(op));
    }
    BoundSchedule build() const {
        return {std::make_shared<const Schedule>(world_size_, rank_, input_chunks_, output_chunks_, scratch_,
                                                 operations_)};
    }

private:
    std::uint32_t world_size_, rank_, input_chunks_, output_chunks_;
    std::vector<Chunk> scratch_;
    std::vector<ScheduleOp> operations_;
};

void bind_schedule(nb::module_& m) {
    nb::class_<BoundSchedule>(m, "Schedule", "What one rank does in a collective, as data.")
        .def_prop_ro("peers", [](const BoundSchedule& s) { return s.schedule->peers(); })
        .def_prop_ro("world_size", [](const BoundSchedule& s) { return s.schedule->world_size(); })
        .def_prop_ro("rank", [](const BoundSchedule& s) { return s.schedule->rank(); });
    nb::class_<ScheduleBuilder>(m, "ScheduleBuilder", "Makes a Schedule, operation by operation.")
        .def(nb::init<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(), nb::arg("world_size"),
             nb::arg("rank"), nb::arg("input_chunks"), nb::arg("output_chunks"))
        .def("scratch", &ScheduleBuilder::scratch, nb::arg("like"))
        .def("send", &ScheduleBuilder::send, nb::arg("peer"), nb::arg("message"), nb::arg("source"),
             nb::arg("lossy"))
        .def("receive", &ScheduleBuilder::receive, nb::arg("peer"), nb::arg("message"), nb::arg("target"),
             nb::arg("operand").none(), nb::arg("final"), nb::arg("lossy"))
        .def("combine", &ScheduleBuilder::combine, nb::arg("target"), nb::arg("operands"), nb::arg("final"))
        .def("build", &ScheduleBuilder::build);
}

void bind_loss_rules(nb::module_& m) {
    nb::class_<BoundLossRules>(m, "LossRules", "How a bounded collective may lose.")
        .def(
            "__init__",
            [](BoundLossRules* self, double loss_ratio, std::optional<double> deadline_s,
               std::optional<double> patience_s, bool rescale,
               std::optional<std::vector<std::optional<ImportanceBytes>>> importance) {
                const auto duration = [](double seconds) {
                    return Duration{std::llround(std::clamp(seconds, -1.0, 1e9) * 1e9)};
                };
                new (self) BoundLossRules();
                self->rules.loss_ratio = loss_ratio;
                if (deadline_s) self->rules.deadline = duration(*deadline_s);
                if (patience_s) self->rules.patience = duration(*patience_s);
                self->rules.rescale = rescale;
                if (!importance) return;
                for (std::optional<ImportanceBytes>& each : *importance) {
                    if (!each) {
                        self->importance.emplace_back();
                        continue;
                    }
                    self->importance.emplace_back(each->data(), each->size());
                    self->arrays.push_back(std::move(*each));
                }
                self->rules.importance = self->importance;
            },
            nb::arg("loss_ratio"), nb::arg("deadline_s") = nb::none(), nb::arg("patience_s") = nb::none(),
            nb::arg("rescale") = false, nb::arg("importance") = nb::none());
}

using BlockWords = nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>>;

BlockWords words_of(const CollectiveResult::Abandoned& abandoned) {
    auto* words = new std::vector<std::uint64_t>(abandoned.blocks);
    const nb::capsule owner(words, [](void* p) noexcept { delete static_cast<std::vector<std::uint64_t>*>(p); });
    return BlockWords(words->data(), {words->size()}, owner);
}

std::optional<std::uint32_t> known(std::uint32_t rank) {
    return rank == UINT32_MAX ? std::nullopt : std::optional(rank);
}

std::optional<std::string> word(CollectiveError error) {
    return error == CollectiveError::none ? std::nullopt : std::optional<std::string>(name(error));
}

void bind_result(nb::module_& m) {
    using Result = CollectiveResult;
    nb::class_<Result::Waiting>(m, "Waiting", "A member that a collective was still waiting for.")
        .def_ro("peer", &Result::Waiting::peer)
        .def_ro("for_arrival", &Result::Waiting::for_arrival)
        .def_ro("missing_bytes", &Result::Waiting::missing_bytes);
    nb::class_<Result::Abandoned>(m, "AbandonedMessage", "What was given up of one message.")
        .def_ro("sent", &Result::Abandoned::sent)
        .def_ro("peer", &Result::Abandoned::peer)
        .def_prop_ro("chunk", [](const Result::Abandoned& a) { return a.chunk.index; })
        .def_ro("message_bytes", &Result::Abandoned::message_bytes)
        .def_ro("block_bytes", &Result::Abandoned::block_bytes)
        .def_ro("abandoned_bytes", &Result::Abandoned::abandoned_bytes)
        .def_prop_ro("blocks", &words_of, nb::rv_policy::automatic);
    nb::class_<Result>(m, "CollectiveResult", "How a collective, or a message of a group, ended.")
        .def_prop_ro("error", [](const Result& r) { return word(r.error); })
        .def_prop_ro("cause", [](const Result& r) { return word(r.cause); })
        .def_prop_ro("engine_error",
                     [](const Result& r) {
                         return r.engine_error == CommandError::none
                                    ? std::nullopt
                                    : std::optional<std::string>(name(r.engine_error));
                     })
        .def_prop_ro("culprit", [](const Result& r) { return known(r.culprit); })
        .def_prop_ro("reporter", [](const Result& r) { return known(r.reporter); })
        .def_ro("sequence", &Result::sequence)
        .def_prop_ro("peer", [](const Result& r) { return known(r.peer); })
        .def_ro("bytes", &Result::bytes)
        .def_prop_ro("waited_s", [](const Result& r) { return in_seconds(r.waited); })
        .def_ro("sent_bytes", &Result::sent_bytes)
        .def_ro("received_bytes", &Result::received_bytes)
        .def_ro("retransmitted_bytes", &Result::retransmitted_bytes)
        .def_prop_ro("lossy_fastest_s", [](const Result& r) { return in_seconds(r.lossy_fastest); })
        .def_prop_ro("waiting_for", [](const Result& r) { return r.waiting_for; })
        .def_prop_ro("abandoned", [](const Result& r) { return r.abandoned; })
        .def_ro("foreign_signature", &Result::foreign_signature)
        .def_ro("foreign_bytes", &Result::foreign_bytes)
        .def_ro("expected_bytes", &Result::expected_bytes);
}

}  // namespace

void bind_collective_values(nb::module_& m) {
    bind_schedule(m);
    bind_loss_rules(m);
    bind_result(m);
}

}  // namespace dlcp::bind

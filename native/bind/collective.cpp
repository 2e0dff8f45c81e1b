// Schedules, groups and collectives for Python. Memory crosses as an address and a length; `keep` is whatever object
// must live until the collective is over, held here or, when Python drops the Collective, by the host.
#include "bind/collective.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace dlcp::bind {
namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;

Chunk chunk_of(Pair pair) {
    if (pair.first >= spaces)
        throw nb::value_error(("space is " + std::to_string(pair.first) + "; accepted: 0 to 2").c_str());
    return {static_cast<Space>(pair.first), pair.second};
}

std::shared_ptr<const Schedule> make_schedule(std::uint32_t world_size, std::uint32_t rank,
                                              std::uint32_t input_chunks, std::uint32_t output_chunks,
                                              const std::vector<Pair>& scratch, nb::list ops) {
    std::vector<Chunk> scratch_chunks;
    for (const Pair pair : scratch) scratch_chunks.push_back(chunk_of(pair));
    std::vector<ScheduleOp> plan;
    plan.reserve(ops.size());
    for (const nb::handle each : ops) {
        const auto fields = nb::cast<nb::tuple>(each);
        if (fields.size() != 7)
            throw nb::value_error("an operation is (kind, final, peer, message, target, operands, lossy)");
        const auto kind = nb::cast<std::uint32_t>(fields[0]);
        if (kind > 2) throw nb::value_error(("kind is " + std::to_string(kind) + "; accepted: 0 to 2").c_str());
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
    return std::make_shared<const Schedule>(world_size, rank, input_chunks, output_chunks,
                                            std::move(scratch_chunks), std::move(plan));
}

// None, (address, nbytes) to partition, or a list of (address, nbytes).
std::vector<ChunkMemory> memory_of(nb::handle given, std::uint32_t chunks, DataType type) {
    std::vector<ChunkMemory> out;
    if (given.is_none()) return out;
    const auto one = [](nb::handle pair) {
        const auto [address, bytes] = nb::cast<std::pair<std::uintptr_t, std::uint64_t>>(pair);
        return ChunkMemory{reinterpret_cast<std::uint8_t*>(address), bytes};
    };
    out.reserve(chunks);
    if (nb::isinstance<nb::list>(given)) {
        for (const nb::handle each : nb::cast<nb::list>(given)) out.push_back(one(each));
        return out;
    }
    return partition(one(given), chunks, type);
}

// Objects of collectives that nobody holds. Touched with the GIL held.
struct KeptObjects {
    std::vector<std::pair<CollectivePtr, nb::object>> list;
    void sweep() {
        std::erase_if(list, [](const auto& each) { return each.first->over.load(); });
    }
};

class Collective {
public:
    Collective(CollectivePtr operation, nb::object keep, std::shared_ptr<KeptObjects> kept)
        : operation_(std::move(operation)), keep_(std::move(keep)), kept_(std::move(kept)) {}
    Collective(Collective&&) = default;
    ~Collective() {
        if (operation_ != nullptr && !over()) kept_->list.emplace_back(operation_, std::move(keep_));
    }
    bool over() const { return operation_->over.load(std::memory_order_acquire); }
    const CollectivePtr& operation() const { return operation_; }
    const CollectiveResult& result() const {
        if (!over()) throw nb::value_error("the collective is not over");
        return operation_->result;
    }
    void forget_if_over() {
        if (over()) keep_.reset();
    }

private:
    CollectivePtr operation_;
    nb::object keep_;
    std::shared_ptr<KeptObjects> kept_;
};

std::shared_ptr<KeptObjects> kept_objects() {
    // For all hosts of the process; leaked, since it may be needed while the interpreter ends.
    static auto* kept = new std::shared_ptr<KeptObjects>(std::make_shared<KeptObjects>());
    return *kept;
}

using ImportanceBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// (loss_ratio, deadline_s or None, patience_s or None, rescale, importance: None or a list of arrays of uint8 or None, by rank); the arrays
// are held as long as this is.
class BoundLossRules {
public:
    explicit BoundLossRules(nb::handle given) {
        if (given.is_none()) return;
        const auto fields = nb::cast<nb::tuple>(given);
        if (fields.size() != 5)
            throw nb::value_error("loss is (loss_ratio, deadline_s, patience_s, rescale, importance)");
        given_ = true;
        rules_.loss_ratio = nb::cast<double>(fields[0]);
        const auto in_duration = [](nb::handle seconds) {
            return Duration{static_cast<std::int64_t>(std::clamp(nb::cast<double>(seconds), -1.0, 1e9) * 1e9)};
        };
        if (!fields[1].is_none()) rules_.deadline = in_duration(fields[1]);
        if (!fields[2].is_none()) rules_.patience = in_duration(fields[2]);
        rules_.rescale = nb::cast<bool>(fields[3]);
        if (fields[4].is_none()) return;
        for (const nb::handle each : nb::cast<nb::list>(fields[4])) {
            if (each.is_none()) {
                spans_.emplace_back();
                continue;
            }
            arrays_.push_back(nb::cast<ImportanceBytes>(each));
            spans_.emplace_back(arrays_.back().data(), arrays_.back().size());
        }
        rules_.importance = spans_;
    }
    const LossRules* rules() const { return given_ ? &rules_ : nullptr; }

private:
    bool given_ = false;
    LossRules rules_;
    std::vector<ImportanceBytes> arrays_;
    std::vector<std::span<const std::uint8_t>> spans_;
};

Duration duration_of(std::optional<double> timeout_s) { return timeout_s ? timeout_of(timeout_s) : Duration{-1}; }

Collective start_collective(BoundRuntime& host, const std::shared_ptr<const Schedule>& schedule,
                            std::uint32_t group, std::uint32_t sequence, std::uint32_t signature, nb::handle input,
                            nb::handle output, DataType type, ReduceOp op, std::uint32_t average_over,
                            std::uint32_t traffic_class, std::optional<double> timeout_s, nb::object keep,
                            bool wait_follows, nb::handle loss) {
    auto kept = kept_objects();
    kept->sweep();
    if (traffic_class > 6)
        throw nb::value_error(
            ("traffic_class is " + std::to_string(traffic_class) + "; accepted: 0 to 6").c_str());
    const BoundLossRules rules(loss);
    CollectiveCommand command;
    command.loss = rules.rules();
    command.group = group;
    command.schedule = schedule;
    command.sequence = sequence;
    command.signature = signature;
    const std::vector<ChunkMemory> inputs = memory_of(input, schedule->chunks(Space::input), type);
    const std::vector<ChunkMemory> outputs = memory_of(output, schedule->chunks(Space::output), type);
    command.input = inputs;
    command.output = outputs;
    command.type = type;
    command.op = op;
    command.average_over = average_over;
    command.traffic_class = static_cast<std::uint8_t>(traffic_class);
    command.timeout = duration_of(timeout_s);
    CollectivePtr operation = host.unlocked([&] { return host.runtime().start(command, wait_follows); });
    return {std::move(operation), std::move(keep), std::move(kept)};
}

Collective start_message(BoundRuntime& host, std::uint32_t group, bool sending, std::optional<std::uint32_t> peer,
                         std::uint32_t tag, std::uintptr_t address, std::uint64_t nbytes,
                         std::uint32_t traffic_class, std::optional<double> timeout_s, nb::object keep,
                         bool wait_follows) {
    auto kept = kept_objects();
    kept->sweep();
    if (traffic_class > 6)
        throw nb::value_error(
            ("traffic_class is " + std::to_string(traffic_class) + "; accepted: 0 to 6").c_str());
    MessageCommand command;
    command.group = group;
    command.sending = sending;
    command.peer = peer.value_or(UINT32_MAX);
    command.tag = tag;
    command.memory = {reinterpret_cast<std::uint8_t*>(address), nbytes};
    command.traffic_class = static_cast<std::uint8_t>(traffic_class);
    command.timeout = duration_of(timeout_s);
    CollectivePtr operation = host.unlocked([&] { return host.runtime().start(command, wait_follows); });
    return {std::move(operation), std::move(keep), std::move(kept)};
}

nb::object rank_or_none(std::uint32_t rank) {
    return rank == UINT32_MAX ? nb::none() : nb::object(nb::int_(rank));
}

nb::dict result_of(const Collective& collective) {
    const CollectiveResult& r = collective.result();
    nb::dict out;
    const auto word = [](CollectiveError error) {
        return error == CollectiveError::none ? nb::none() : nb::object(nb::str(name(error)));
    };
    out["error"] = word(r.error);
    out["cause"] = word(r.cause);
    out["engine_error"] =
        r.engine_error == CommandError::none ? nb::none() : nb::object(nb::str(name(r.engine_error)));
    out["culprit"] = rank_or_none(r.culprit);
    out["reporter"] = rank_or_none(r.reporter);
    out["sequence"] = r.sequence;
    out["peer"] = rank_or_none(r.peer);
    out["bytes"] = r.bytes;
    out["waited_s"] = in_seconds(r.waited);
    out["sent_bytes"] = r.sent_bytes;
    out["received_bytes"] = r.received_bytes;
    out["retransmitted_bytes"] = r.retransmitted_bytes;
    out["lossy_fastest_s"] = in_seconds(r.lossy_fastest);
    nb::list waiting;
    for (const auto& each : r.waiting_for)
        waiting.append(nb::make_tuple(each.peer, each.for_arrival, each.missing_bytes));
    out["waiting_for"] = waiting;
    out["foreign_signature"] = r.foreign_signature;
    out["foreign_bytes"] = r.foreign_bytes;
    out["expected_bytes"] = r.expected_bytes;
    return out;
}

using BlockWords = nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>>;

// (sent, peer, chunk index, message_bytes, block_bytes, abandoned_bytes, bitmap of blocks), a message each.
nb::list abandoned_of(const Collective& collective) {
    nb::list out;
    for (const CollectiveResult::Abandoned& each : collective.result().abandoned) {
        auto* words = new std::vector<std::uint64_t>(each.blocks);
        const nb::capsule owner(words,
                                [](void* p) noexcept { delete static_cast<std::vector<std::uint64_t>*>(p); });
        out.append(nb::make_tuple(each.sent, each.peer, each.chunk.index, each.message_bytes, each.block_bytes,
                                  each.abandoned_bytes, BlockWords(words->data(), {words->size()}, owner)));
    }
    return out;
}

}  // namespace

void bind_collectives(nb::module_& m, nb::class_<BoundRuntime>& runtime) {
    // Held by shared_ptr on both sides: a collective under way keeps its schedule.
    struct BoundSchedule {
        std::shared_ptr<const Schedule> schedule;
    };
    nb::class_<BoundSchedule>(m, "Schedule", "What one rank does in a collective, as data.")
        .def(
            "__init__",
            [](BoundSchedule* self, std::uint32_t world_size, std::uint32_t rank, std::uint32_t input_chunks,
               std::uint32_t output_chunks, const std::vector<Pair>& scratch, nb::list ops) {
                new (self)
                    BoundSchedule{make_schedule(world_size, rank, input_chunks, output_chunks, scratch, ops)};
            },
            nb::arg("world_size"), nb::arg("rank"), nb::arg("input_chunks"), nb::arg("output_chunks"),
            nb::arg("scratch"), nb::arg("ops"))
        .def_prop_ro("peers", [](const BoundSchedule& s) { return s.schedule->peers(); })
        .def_prop_ro("world_size", [](const BoundSchedule& s) { return s.schedule->world_size(); })
        .def_prop_ro("rank", [](const BoundSchedule& s) { return s.schedule->rank(); });

    m.def(
        "part_bytes",
        [](std::uint64_t nbytes, std::uint32_t parts, DataType type) {
            std::vector<std::uint64_t> lengths;
            for (const ChunkMemory& part : partition({nullptr, nbytes}, parts, type))
                lengths.push_back(part.bytes);
            return lengths;
        },
        nb::arg("nbytes"), nb::arg("parts"), nb::arg("type"),
        "Bytes of each part of memory that a collective partitions (native/collective/partition.hpp).");

    nb::class_<Collective>(m, "Collective", "One collective, or message of a group, under way or over.")
        .def_prop_ro("over", &Collective::over)
        .def_prop_ro("result", &result_of)
        .def_prop_ro("abandoned", &abandoned_of);

    runtime
        .def(
            "open_group",
            [](BoundRuntime& h, std::uint32_t group, const std::vector<std::uint32_t>& members,
               std::uint32_t own) {
                return h.unlocked([&] { return h.runtime().open_group(group, members, own); });
            },
            nb::arg("group"), nb::arg("members"), nb::arg("own"))
        .def(
            "close_group",
            [](BoundRuntime& h, std::uint32_t group, bool tell) {
                h.unlocked([&] { h.runtime().close_group(group, tell); });
            },
            nb::arg("group"), nb::arg("tell"))
        .def(
            "start_collective",
            [](BoundRuntime& h, const BoundSchedule& schedule, std::uint32_t group, std::uint32_t sequence,
               std::uint32_t signature, nb::handle input, nb::handle output, DataType type, ReduceOp op,
               std::uint32_t average_over, std::uint32_t traffic_class, std::optional<double> timeout_s,
               nb::object keep, bool wait_follows, nb::handle loss) {
                return start_collective(h, schedule.schedule, group, sequence, signature, input, output, type, op,
                                        average_over, traffic_class, timeout_s, std::move(keep), wait_follows,
                                        loss);
            },
            nb::arg("schedule"), nb::arg("group"), nb::arg("sequence"), nb::arg("signature"),
            nb::arg("input").none(), nb::arg("output").none(), nb::arg("type"), nb::arg("op"),
            nb::arg("average_over"), nb::arg("traffic_class"), nb::arg("timeout_s").none(), nb::arg("keep").none(),
            nb::arg("wait_follows") = false, nb::arg("loss") = nb::none())
        .def("start_message", &start_message, nb::arg("group"), nb::arg("sending"), nb::arg("peer").none(),
             nb::arg("tag"), nb::arg("address"), nb::arg("nbytes"), nb::arg("traffic_class"),
             nb::arg("timeout_s").none(), nb::arg("keep").none(), nb::arg("wait_follows") = false)
        .def(
            "wait_collective",
            [](BoundRuntime& h, Collective& collective, std::optional<double> timeout_s) {
                const bool over = collective.over() || h.in_slices(timeout_s, [&](Duration slice) {
                    return h.runtime().wait(collective.operation(), slice);
                });
                collective.forget_if_over();
                return over;
            },
            nb::arg("collective"), nb::arg("timeout_s").none())
        .def(
            "watch_collective",
            [](BoundRuntime& h, Collective& collective, std::uint64_t id) {
                return h.unlocked([&] { return h.runtime().watch(collective.operation(), id); });
            },
            nb::arg("collective"), nb::arg("id"));
}

}  // namespace dlcp::bind

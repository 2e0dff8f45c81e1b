// Groups and collectives for Python. Memory crosses as an address and a length; `keep` is whatever object
// must live until the collective is over: the Collective holds it, or kept_objects() once Python has dropped that.
#include "bind/collective.hpp"

#include "bind/collective_values.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <vector>

namespace dlcp::bind {
namespace {

// (address, nbytes). Throws BufferError: no such pair, or a null pointer.
ChunkMemory chunk_memory(nb::handle pair) {
    std::pair<std::uintptr_t, std::uint64_t> span;
    const auto refuse = [&](const std::string& why) {
        throw BufferError("memory is " + std::string(nb::repr(pair).c_str()) + why);
    };
    if (!nb::try_cast(pair, span)) refuse("; accepted: a Span, whose address and nbytes are 0 or more");
    if (span.second > 0 && span.first == 0) refuse(", a null pointer; accepted: the address of memory");
    return {reinterpret_cast<std::uint8_t*>(span.first), span.second};
}

// None, (address, nbytes) to partition, or a list of (address, nbytes).
std::vector<ChunkMemory> memory_of(nb::handle given, std::uint32_t chunks, DataType type) {
    std::vector<ChunkMemory> out;
    if (given.is_none()) return out;
    out.reserve(chunks);
    if (nb::isinstance<nb::list>(given)) {
        for (const nb::handle each : nb::cast<nb::list>(given)) out.push_back(chunk_memory(each));
        return out;
    }
    return partition(chunk_memory(given), chunks, type);
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
    // `runtime`: the Python object, which this one keeps.
    Collective(CollectivePtr operation, nb::object runtime, nb::object keep, std::shared_ptr<KeptObjects> kept)
        : operation_(std::move(operation)),
          runtime_(std::move(runtime)),
          keep_(std::move(keep)),
          kept_(std::move(kept)) {}
    Collective(Collective&&) = default;
    ~Collective() {
        if (operation_ != nullptr && !over()) kept_->list.emplace_back(operation_, std::move(keep_));
    }
    bool over() const { return operation_->over.load(std::memory_order_acquire); }
    const CollectiveResult& result() const {
        if (!over()) throw nb::value_error("the collective is not over");
        return operation_->result;
    }
    bool wait(std::optional<double> timeout_s) {
        const bool ended = over() || runtime().in_slices(timeout_s, [&](Duration slice) {
            return runtime().runtime().wait(operation_, slice);
        });
        if (ended) keep_.reset();
        return ended;
    }
    bool watch(std::uint64_t id) {
        return runtime().unlocked([&] { return runtime().runtime().watch(operation_, id); });
    }

private:
    BoundRuntime& runtime() const { return nb::cast<BoundRuntime&>(runtime_); }

    CollectivePtr operation_;
    nb::object runtime_;
    nb::object keep_;
    std::shared_ptr<KeptObjects> kept_;
};

std::shared_ptr<KeptObjects> kept_objects() {
    // For all runtimes of the process; leaked, since it may be needed while the interpreter ends.
    static auto* kept = new std::shared_ptr<KeptObjects>(std::make_shared<KeptObjects>());
    return *kept;
}

// What a call says besides its memory: the attributes of dlcp.transport.call_options.CallOptions.
struct CallOptions {
    std::uint8_t traffic_class;
    Duration timeout;
    bool wait_follows;

    explicit CallOptions(nb::handle given)
        : traffic_class(nb::cast<std::uint8_t>(given.attr("traffic_class"))),
          timeout(timeout_of(nb::cast<std::optional<double>>(given.attr("timeout_s")))),
          wait_follows(nb::cast<bool>(given.attr("wait_follows"))) {}
};

using RuntimeHandle = nb::handle_t<BoundRuntime>;

template <class Command>
Collective start(RuntimeHandle self, const Command& command, bool wait_follows, nb::object keep) {
    auto kept = kept_objects();
    kept->sweep();
    auto& runtime = nb::cast<BoundRuntime&>(self);
    CollectivePtr operation = runtime.unlocked([&] { return runtime.runtime().start(command, wait_follows); });
    return {std::move(operation), nb::borrow(self), std::move(keep), std::move(kept)};
}

// `prepared`: the command as its plan has it; a call brings what differs.
Collective start_collective(RuntimeHandle self, const CollectiveCommand& prepared, std::uint32_t sequence,
                            nb::handle input, nb::handle output, nb::handle options, nb::object keep,
                            const BoundLossRules* loss, const CodedRules* coded, const UpdateRules* update) {
    const CallOptions call(options);
    const Schedule& schedule = *prepared.schedule;
    const std::vector<ChunkMemory> inputs = memory_of(input, schedule.chunks(Space::input), prepared.type);
    const std::vector<ChunkMemory> outputs = memory_of(output, schedule.chunks(Space::output), prepared.type);
    CollectiveCommand command = prepared;
    command.sequence = sequence;
    command.input = inputs;
    command.output = outputs;
    command.traffic_class = call.traffic_class;
    command.timeout = call.timeout;
    command.loss = loss == nullptr ? nullptr : &loss->rules;
    command.coded = coded;
    command.update = update;
    return start(self, command, call.wait_follows, std::move(keep));
}

Collective start_message(RuntimeHandle self, std::uint32_t group, bool sending, std::optional<std::uint32_t> peer,
                         std::uint32_t tag, nb::handle memory, nb::handle options, nb::object keep) {
    const CallOptions call(options);
    MessageCommand command;
    command.group = group;
    command.sending = sending;
    command.peer = peer.value_or(UINT32_MAX);
    command.tag = tag;
    command.memory = chunk_memory(memory);
    command.traffic_class = call.traffic_class;
    command.timeout = call.timeout;
    return start(self, command, call.wait_follows, std::move(keep));
}

}  // namespace

void bind_collectives(nb::module_& m, nb::class_<BoundRuntime>& runtime) {
    nb::class_<CollectiveCommand>(m, "CollectiveCommand", "A collective as its plan has it, for any memory.")
        .def(
            "__init__",
            [](CollectiveCommand* self, const BoundSchedule& schedule, std::uint32_t group,
               std::uint32_t signature, DataType type, ReduceOp op, std::uint32_t average_over,
               bool copies_short) {
                new (self) CollectiveCommand{.group = group,
                                             .schedule = schedule.schedule,
                                             .signature = signature,
                                             .type = type,
                                             .op = op,
                                             .average_over = average_over,
                                             .copies_short = copies_short};
            },
            nb::arg("schedule"), nb::arg("group"), nb::arg("signature"), nb::arg("type"), nb::arg("op"),
            nb::arg("average_over"), nb::arg("copies_short") = true);

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
        .def_prop_ro("result", &Collective::result, nb::rv_policy::reference_internal)
        .def("wait", &Collective::wait, nb::arg("timeout_s").none())
        .def("watch", &Collective::watch, nb::arg("id"));

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
        .def("start_collective", &start_collective, nb::arg("command"), nb::arg("sequence"),
             nb::arg("input").none(), nb::arg("output").none(), nb::arg("options"), nb::arg("keep").none(),
             nb::arg("loss").none() = nb::none(), nb::arg("coded").none() = nb::none(),
             nb::arg("update").none() = nb::none())
        .def("start_message", &start_message, nb::arg("group"), nb::arg("sending"), nb::arg("peer").none(),
             nb::arg("tag"), nb::arg("memory"), nb::arg("options"), nb::arg("keep").none());
}

}  // namespace dlcp::bind

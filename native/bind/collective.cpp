// Groups and collectives for Python.
#include "bind/collective.hpp"

#include <vector>

#include "bind/bound_collective.hpp"
#include "bind/group_calls.hpp"

namespace dlcp::bind {

Collective start_collective(RuntimeHandle self, const CollectiveCommand& prepared, std::uint32_t sequence,
                            nb::handle input, nb::handle output, const CallOptions& call, nb::object keep,
                            const BoundLossRules* loss, const CodedRules* coded, const UpdateRules* update) {
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

namespace {

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
        .def_prop_ro("completion", &Collective::completion,
                     nb::sig("def completion(self) -> tuple[float, int, int] | None"))
        .def("wait", &Collective::wait, nb::arg("timeout_s").none())
        .def("watch", &Collective::watch, nb::arg("id"));

    bind_group_calls(m);

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
            [](RuntimeHandle self, const CollectiveCommand& command, std::uint32_t sequence, nb::handle inputs,
               nb::handle outputs, nb::handle options, nb::object keep, const CodedRules* coded,
               const UpdateRules* update) {
                return start_collective(self, command, sequence, inputs, outputs, CallOptions(options),
                                        std::move(keep), nullptr, coded, update);
            },
            nb::arg("command"), nb::arg("sequence"), nb::arg("input").none(), nb::arg("output").none(),
            nb::arg("options"), nb::arg("keep").none(), 
            nb::arg("coded").none() = nb::none(), nb::arg("update").none() = nb::none())
        .def("start_message", &start_message, nb::arg("group"), nb::arg("sending"), nb::arg("peer").none(),
             nb::arg("tag"), nb::arg("memory"), nb::arg("options"), nb::arg("keep").none());
}

}  // namespace dlcp::bind

// The calls of one group. Each is numbered, noted for errors (dlcp/transport/call_log.py), started, and recorded for the
// flight recorder (dlcp/transport/flight_recorder.py), whose lists belong to Python. It is native since a small call
// takes less time on the wire than in Python.
#include "bind/group_calls.hpp"

#include <chrono>

#include "bind/bound_collective.hpp"

namespace dlcp::bind {
namespace {

std::int64_t system_ns() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

class GroupCalls {
public:
    GroupCalls(nb::object runtime, nb::object recorder, nb::object group, nb::list noted)
        : runtime_(std::move(runtime)),
          group_(std::move(group)),
          noted_(std::move(noted)),
          noted_count_(nb::len(noted_)),
          numbers_(recorder.attr("numbers")),
          append_(recorder.attr("followed").attr("append")),
          look_after_(recorder.attr("look_after")) {}

    std::uint64_t sequence() const { return sequence_; }

    // The next `count` numbers of collectives, the first of which it answers.
    std::uint64_t take(std::uint64_t count) {
        const std::uint64_t first = sequence_;
        sequence_ += count;
        return first;
    }

    nb::object start(const CollectiveCommand& command, nb::handle words, nb::tuple recorded, std::uint64_t sequence,
                     nb::handle inputs, nb::handle outputs, nb::handle options, nb::object keep,
                     const BoundLossRules* loss, const CodedRules* coded, nb::object followed) {
        const CallOptions call(options);
        note(sequence, words);
        nb::object collective = begin(command, sequence, inputs, outputs, call, std::move(keep), loss, coded);
        if (followed.is_none()) followed = collective;
        record(sequence, recorded, call, std::move(followed), collective);
        return collective;
    }

    // Starts a collective in place and waits for it. None: it went well; else its number, and it itself. `options`: one
    // object for many calls.
    nb::object run(const CollectiveCommand& command, nb::handle words, nb::tuple recorded, nb::handle data,
                   nb::object options, nb::object keep) {
        if (!options_.is(options)) {
            call_ = std::make_shared<const CallOptions>(options);
            options_ = options;
        }
        const std::shared_ptr<const CallOptions> call = call_;  // another thread may come with others meanwhile
        const std::uint64_t sequence = take(1);
        note(sequence, words);
        nb::object collective = begin(command, sequence, nb::none(), data, *call, std::move(keep), nullptr, nullptr);
        record(sequence, recorded, *call, collective, collective);
        auto& waited = nb::cast<Collective&>(collective);
        waited.wait(std::nullopt);
        if (waited.result().error == CollectiveError::none) return nb::none();
        return nb::make_tuple(sequence, collective);
    }

private:
    // The executor's number has 32 bits, of which a tag carries 20.
    nb::object begin(const CollectiveCommand& command, std::uint64_t sequence, nb::handle inputs, nb::handle outputs,
                     const CallOptions& call, nb::object keep, const BoundLossRules* loss, const CodedRules* coded) {
        return nb::cast(start_collective(RuntimeHandle(runtime_), command, static_cast<std::uint32_t>(sequence), inputs,
                                         outputs, call, std::move(keep), loss, coded, nullptr));
    }

    void note(std::uint64_t sequence, nb::handle words) {
        noted_[sequence % noted_count_] = nb::make_tuple(sequence, words);
    }

    // While its packets travel. `recorded`: dlcp.transport.plan.Recorded; the facts are those of FlightRecorder.facts.
    void record(std::uint64_t sequence, const nb::tuple& recorded, const CallOptions& call, nb::object followed,
                nb::handle collective) {
        nb::setattr(group_, "enqueued", nb::int_(sequence));
        nb::tuple facts = nb::make_tuple(nb::steal(PyIter_Next(numbers_.ptr())), group_, sequence, recorded[0],
                                         recorded[1], recorded[2], recorded[3], recorded[4], false, 0, call.timeout_s,
                                         call.label, system_ns());
        append_(nb::make_tuple(std::move(facts), std::move(followed), collective));
        const bool large = nb::cast<std::uint64_t>(recorded[1]) >= large_bytes ||
                           nb::cast<std::uint64_t>(recorded[2]) >= large_bytes;
        if (large) {
            look_after_(nb::int_(3));
        } else if (++unlooked_ == look_at) {
            unlooked_ = 0;
            look_after_(nb::int_(2 * look_at));
        }
    }

    // What is over is looked for once so many have been started, since that takes less time for several at once; after
    // one on so many bytes at once, since what is followed may keep memory alive.
    static constexpr int look_at = 8;
    static constexpr std::uint64_t large_bytes = 1 << 16;

    nb::object runtime_, group_;
    nb::list noted_;
    std::uint64_t noted_count_;
    nb::object numbers_, append_, look_after_;
    nb::object options_;
    std::shared_ptr<const CallOptions> call_;
    std::uint64_t sequence_ = 0;
    int unlooked_ = 0;
};

}  // namespace

void bind_group_calls(nb::module_& m) {
    nb::class_<GroupCalls>(m, "GroupCalls", "The calls of one group, numbered, noted and recorded as they start.")
        .def(nb::init<nb::object, nb::object, nb::object, nb::list>(), nb::arg("runtime"), nb::arg("recorder"),
             nb::arg("group"), nb::arg("noted"))
        .def_prop_ro("sequence", &GroupCalls::sequence)
        .def("take", &GroupCalls::take, nb::arg("count"))
        .def("start", &GroupCalls::start, nb::arg("command"), nb::arg("words"), nb::arg("recorded"),
             nb::arg("sequence"), nb::arg("inputs").none(), nb::arg("outputs").none(), nb::arg("options"),
             nb::arg("keep").none(), nb::arg("loss").none() = nb::none(), nb::arg("coded").none() = nb::none(),
             nb::arg("followed") = nb::none())
        .def("run", &GroupCalls::run, nb::arg("command"), nb::arg("words"), nb::arg("recorded"),
             nb::arg("data"), nb::arg("options"), nb::arg("keep").none());
}

}  // namespace dlcp::bind

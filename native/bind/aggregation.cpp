// Switches that add, for dlcp.switch.software and for tests: jobs, their slots as a pure function of frames, and the
// numbers that a worker sends.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bind/aggregation.hpp"
#include "bind/bind.hpp"
#include "bind/kernel.hpp"
#include "io/aggregation_endpoint.hpp"

namespace dlcp::bind {
namespace {

using namespace switching;

// Port, MAC address, IPv4 address, UDP port.
using Place = std::tuple<std::uint16_t, std::uint64_t, std::uint32_t, std::uint16_t>;

Participant participant_of(const Place& place) {
    return {std::get<0>(place), std::get<1>(place), std::get<2>(place), std::get<3>(place)};
}

// The slots alone: frames in, frames out.
class Slots {
public:
    explicit Slots(const std::vector<AggregationJob>& jobs) {
        if (const std::string wrong = validate(jobs, UINT16_MAX); !wrong.empty())
            throw std::invalid_argument(wrong);
        slots_.configure(jobs);
    }

    // Who it is for ("ordinary", "forward", "nobody", "sender", "everyone", "upper", "asker"), and the frames with their ports;
    // of a frame that is forwarded the port is the one it came by.
    nb::tuple process(const nb::bytes& frame, std::uint16_t port) {
        constexpr const char* names[] = {"ordinary", "forward", "nobody", "sender", "everyone", "upper", "asker"};
        const AggregationSlots::Verdict verdict =
            slots_.handle(port, {static_cast<const std::uint8_t*>(frame.data()), frame.size()});
        nb::list out;
        const auto add = [&](std::uint16_t to) {
            const auto bytes = slots_.frame();
            out.append(nb::make_tuple(to, nb::bytes(bytes.data(), bytes.size())));
        };
        if (verdict.whom == AggregationSlots::Whom::everyone) {
            for (std::uint16_t w = 0; w < slots_.job(verdict.job).workers.size(); ++w)
                add(slots_.address(verdict.job, w).port);
        } else if (verdict.whom == AggregationSlots::Whom::upper) {
            add(slots_.job(verdict.job).upper->hub.port);
        } else if (verdict.changed) {
            add(port);
        } else if (verdict.whom != AggregationSlots::Whom::nobody) {
            out.append(nb::make_tuple(port, frame));
        }
        return nb::make_tuple(names[static_cast<std::size_t>(verdict.whom)], out);
    }

    nb::list counts() const { return aggregation_counts(counts_of(slots_)); }

private:
    AggregationSlots slots_;
};

// ---- a worker ----

void exponent_codes(std::uintptr_t address, std::size_t count, std::uint32_t per_block, std::uintptr_t codes) {
    if (per_block == 0) raise("per_block is 0");
    const nb::gil_scoped_release release;
    aggregation::exponent_codes({memory_at<const float>(address), count}, per_block,
                                memory_at<std::uint8_t>(codes));
}

// "done", or why not.
const char* text_of(AggregationEndpoint::End end) {
    switch (end) {
        case AggregationEndpoint::End::done: return "done";
        case AggregationEndpoint::End::gave_up: return "gave_up";
        case AggregationEndpoint::End::wrong: return "wrong";
        case AggregationEndpoint::End::stopped: break;
    }
    return "stopped";
}

// Of what is longer, a century.
std::int64_t in_ns(double seconds) { return static_cast<std::int64_t>(std::min(seconds, 3e9) * 1e9); }

const char* all_reduce(AggregationEndpoint& self, std::uintptr_t values, std::size_t count, std::uintptr_t codes,
                       std::uintptr_t out, std::uint32_t width, float divisor, std::uint32_t run,
                       std::uint64_t position, double give_up_s, double limit_s) {
    if (!aggregation::is_width(width)) raise("width is " + std::to_string(width));
    const aggregation::WorkerSettings& settings = self.worker().settings();
    const std::size_t per_block = aggregation::values_per_block(settings.lanes, width);
    const std::size_t blocks = (count + per_block - 1) / per_block;
    const nb::gil_scoped_release release;
    aggregation::FloatBlocks task({memory_at<const float>(values), count},
                                  {memory_at<const std::uint8_t>(codes), blocks}, width, settings.lanes,
                                  settings.ranks, divisor, memory_at<float>(out));
    return text_of(self.run(task, run, position, in_ns(give_up_s), in_ns(limit_s)));
}

const char* probe(AggregationEndpoint& self, std::uint64_t seed, std::uint32_t run, std::uint64_t position,
                  double give_up_s) {
    const aggregation::WorkerSettings& settings = self.worker().settings();
    const nb::gil_scoped_release release;
    aggregation::ProbeBlocks task(seed, settings.slots, settings.lanes, settings.ranks, settings.rank);
    return text_of(self.run(task, run, position, in_ns(give_up_s)));
}

const char* drain(AggregationEndpoint& self, const nb::bytes& exponents, std::uint32_t run, std::uint64_t position,
                  double give_up_s) {
    const std::span<const std::uint8_t> held(static_cast<const std::uint8_t*>(exponents.data()), exponents.size());
    const nb::gil_scoped_release release;
    aggregation::DrainBlocks task(held, self.worker().settings().lanes);
    return text_of(self.run(task, run, position, in_ns(give_up_s)));
}

nb::dict counters(const AggregationEndpoint& self) {
    const aggregation::WorkerCounters& counted = self.worker().counters();
    nb::dict out;
    out["sent_packets"] = counted.sent_packets;
    out["repeated_packets"] = counted.repeated_packets;
    out["results"] = counted.results;
    out["late_results"] = counted.late_results;
    out["wrong_packets"] = counted.wrong_packets;
    return out;
}

void bind_endpoint(nb::module_& m) {
    m.def("aggregation_exponent_codes", &exponent_codes, nb::arg("address"), nb::arg("count"),
          nb::arg("per_block"), nb::arg("codes"), "Writes the code of each block of float32, a byte each.");
    nb::class_<AggregationEndpoint>(m, "AggregationEndpoint")
        .def(
            "__init__",
            [](AggregationEndpoint* self, std::uint32_t job, std::uint16_t generation, std::uint32_t worker,
               std::uint32_t workers, std::uint32_t rank, std::uint32_t ranks, std::uint16_t slots,
               std::uint32_t lanes, double retransmit_s, std::tuple<std::uint32_t, std::uint16_t> bind,
               std::tuple<std::uint32_t, std::uint16_t> hub) {
                if (!aggregation::is_lane_count(lanes)) raise("lanes is " + std::to_string(lanes));
                if (workers < 1 || workers > aggregation::max_workers || worker >= workers)
                    raise("worker is " + std::to_string(worker) + " of " + std::to_string(workers));
                if (ranks < workers || ranks > aggregation::max_ranks || rank >= ranks)
                    raise("rank is " + std::to_string(rank) + " of " + std::to_string(ranks));
                if (slots < 2) raise("slots is " + std::to_string(slots));
                const aggregation::WorkerSettings settings{.job = job,
                                                           .generation = generation,
                                                           .workers = workers,
                                                           .worker = worker,
                                                           .ranks = ranks,
                                                           .rank = rank,
                                                           .slots = slots,
                                                           .lanes = lanes,
                                                           .retransmit_ns = in_ns(retransmit_s)};
                new (self) AggregationEndpoint(settings, {std::get<0>(bind), std::get<1>(bind)},
                                               {std::get<0>(hub), std::get<1>(hub)});
            },
            nb::arg("job"), nb::arg("generation"), nb::arg("worker"), nb::arg("workers"), nb::arg("rank"),
            nb::arg("ranks"), nb::arg("slots"), nb::arg("lanes"), nb::arg("retransmit_s"), nb::arg("bind"),
            nb::arg("hub"))
        .def("all_reduce", &all_reduce, nb::arg("values"), nb::arg("count"), nb::arg("codes"), nb::arg("out"),
             nb::arg("width"), nb::arg("divisor"), nb::arg("run"), nb::arg("position"), nb::arg("give_up_s"),
             nb::arg("limit_s") = 1e12)
        .def("probe", &probe, nb::arg("seed"), nb::arg("run"), nb::arg("position"), nb::arg("give_up_s"))
        .def("drain", &drain, nb::arg("exponents"), nb::arg("run"), nb::arg("position"), nb::arg("give_up_s"))
        .def("set_generation", &AggregationEndpoint::set_generation, nb::arg("generation"))
        .def("stop", &AggregationEndpoint::stop)
        .def("counters", &counters)
        .def_prop_ro("sent_blocks", [](const AggregationEndpoint& self) { return self.worker().sent(); })
        .def_prop_ro("port", &AggregationEndpoint::port);
}

}  // namespace

std::vector<AggregationCounts> counts_of(const AggregationSlots& slots) {
    std::vector<AggregationCounts> out;
    for (std::size_t job = 0; job < slots.size(); ++job)
        out.push_back({slots.job(job).job, slots.job(job).generation, slots.counts(job)});
    return out;
}

nb::list aggregation_counts(const std::vector<AggregationCounts>& counts) {
    constexpr const char* names[] = {"added",    "completed", "flushed", "duplicate", "repeated",
                                     "released", "collision", "stale",   "mismatch",  "below_quorum",
                                     "absent",   "refused",   "to_hub",  "damaged",   "foreign"};
    static_assert(std::size(names) == outcomes);
    nb::list out;
    for (const AggregationCounts& job : counts) {
        nb::dict row;
        for (std::size_t i = 0; i < outcomes; ++i)
            if (job.outcomes[i] != 0) row[names[i]] = job.outcomes[i];
        nb::dict told;
        told["job"] = job.job;
        told["generation"] = job.generation;
        told["outcomes"] = row;
        out.append(told);
    }
    return out;
}

void bind_aggregation(nb::module_& m) {
    m.attr("AGGREGATION_MAX_LANES") = aggregation::max_lanes;
    bind_endpoint(m);
    nb::class_<AggregationJob>(m, "AggregationJob")
        .def(
            "__init__",
            [](AggregationJob* self, std::uint32_t job, std::uint16_t generation, std::uint16_t generations,
               std::uint16_t slots, std::uint32_t lanes, const std::vector<Place>& workers, const Place& hub,
               bool hub_is_here) {
                new (self) AggregationJob{job, generation,          generations, slots, lanes,
                                          {},  participant_of(hub), hub_is_here, {}};
                for (const Place& worker : workers) self->workers.push_back(participant_of(worker));
            },
            nb::arg("job"), nb::arg("generation"), nb::arg("generations"), nb::arg("slots"), nb::arg("lanes"),
            nb::arg("workers"), nb::arg("hub"), nb::arg("hub_is_here"))
        .def(
            "set_upper",
            [](AggregationJob& self, const Place& hub, const Place& own, std::uint8_t worker) {
                self.upper = UpperSwitch{participant_of(hub), participant_of(own), worker};
            },
            nb::arg("hub"), nb::arg("own"), nb::arg("worker"));
    nb::class_<Slots>(m, "AggregationSlots")
        .def(nb::init<const std::vector<AggregationJob>&>(), nb::arg("jobs"))
        .def("process", &Slots::process, nb::arg("frame"), nb::arg("port"))
        .def("counts", &Slots::counts);
}

}  // namespace dlcp::bind

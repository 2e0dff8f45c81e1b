// The software switch between interfaces, for dlcp.switch.software: a configuration, a loop to run in a thread, and what
// may be asked of it meanwhile.
//
// Every call but the constructor may come from any thread, also while run() is under way in another: it is done in the
// loop's thread between two batches, without the GIL. Names of ports and groups are Python's; here they are numbers.
#include "softswitch/core.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <tuple>

#include "bind/aggregation.hpp"
#include "bind/bind.hpp"
#include "softswitch/clock.hpp"
#include "softswitch/loop.hpp"
#include "softswitch/packet_port.hpp"
#include "softswitch/tap_port.hpp"

namespace dlcp::bind {
namespace {

using namespace softswitch;

constexpr const char* choice_names[] = {"flow_hash", "path_id", "random", "round_robin", "adaptive"};
constexpr const char* fate_names[] = {"kept",           "marked",          "trimmed",       "dropped_threshold",
                                      "dropped_buffer", "dropped_trimmed", "dropped_memory"};
static_assert(std::size(fate_names) == fates);

double seconds(Time time) { return std::chrono::duration<double>(time).count(); }

switching::PathChoice choice_of(const std::string& text) {
    for (std::size_t i = 0; i < std::size(choice_names); ++i) {
        if (text == choice_names[i]) return static_cast<switching::PathChoice>(i);
    }
    throw std::invalid_argument("path_choice is " + text);
}

std::unique_ptr<Port> open_port(const std::string& name, std::uint32_t ring_frames) {
    constexpr std::string_view tap = "tap:";
    if (name.starts_with(tap)) return std::make_unique<TapPort>(name.substr(tap.size()));
    return std::make_unique<PacketPort>(name, ring_frames);
}

// Ports, core and loop, born in this order.
class SoftSwitch {
public:
    SoftSwitch(const std::vector<std::string>& names, const Configuration& configuration, Settings settings,
               std::uint32_t ring_frames, bool busy_poll) {
        std::vector<std::unique_ptr<Port>> ports;
        ports.reserve(names.size());
        for (const std::string& name : names) ports.push_back(open_port(name, ring_frames));
        for (const auto& port : ports) settings.frame_bytes.push_back(port->frame_bytes());
        core_.emplace(settings, configuration);
        loop_.emplace(*core_, std::move(ports), busy_poll);
    }

    // Calls `work` in the loop's thread, without the GIL; answers what it answers.
    template <class Work>
    auto inside(Work work) {
        using Result = decltype(work());
        const nb::gil_scoped_release release;
        if constexpr (std::is_void_v<Result>) {
            loop_->call(work);
        } else {
            std::optional<Result> result;
            loop_->call([&] { result = work(); });
            return std::move(*result);
        }
    }

    Core& core() { return *core_; }
    Loop& loop() { return *loop_; }
    void check_port(std::size_t port) const {
        if (port >= core_->ports()) throw std::invalid_argument("port " + std::to_string(port));
    }

private:
    std::optional<Core> core_;
    std::optional<Loop> loop_;
};

// ---- what is seen, as copies ----

struct PortView {
    std::uint64_t rate_bps = 0;
    bool link = false;
    PortCounters counters;
    OutputQueues queues;
    PortStatistics interface;
    Faults faults_in, faults_out;
    std::string capture;
    std::uint64_t leaving_packets = 0;
};

struct View {
    Time now{};
    LoopStatistics loop;
    std::vector<PortView> ports;
    MacTable::Counters addresses;
    std::size_t addresses_known = 0;
    std::uint32_t frames_used = 0;
    std::vector<AggregationCounts> aggregation;
};

View look(Core& core, Loop& loop) {
    View view;
    view.now = monotonic_now();  // the core's is that of the last frame
    view.loop = loop.statistics();
    for (std::uint32_t p = 0; p < core.ports(); ++p) {
        const Capture* capture = loop.capture(p);
        view.ports.push_back({core.configuration().ports[p].rate_bps, core.link(p), core.counters(p),
                              core.queues(p), loop.port(p).statistics(), core.faults(p, false),
                              core.faults(p, true), capture == nullptr ? "" : capture->path(),
                              core.departures(p).size()});
    }
    view.addresses = core.addresses().counters();
    view.addresses_known = core.addresses().entries(view.now).size();
    view.frames_used = core.frames_used();
    view.aggregation = counts_of(core.aggregation());
    return view;
}

nb::dict to_dict(const Faults& faults) {
    nb::dict out;
    out["loss_ratio"] = faults.loss_ratio;
    out["burst_packets"] = faults.burst_packets;
    out["down"] = faults.down;
    out["rate_bps"] = faults.rate_bps;
    out["seed"] = faults.seed;
    return out;
}

nb::list decisions_of(const Decisions& decisions) {
    nb::list out;
    for (std::size_t c = 0; c < decisions.size(); ++c) {
        for (std::size_t level = 0; level < decisions[c].size(); ++level) {
            for (std::size_t fate = 0; fate < fates; ++fate) {
                const Count& count = decisions[c][level][fate];
                if (count.packets == 0) continue;
                nb::dict row;
                row["class"] = c;
                row["level"] = level;
                row["fate"] = fate_names[fate];
                row["packets"] = count.packets;
                row["bytes"] = count.bytes;
                out.append(row);
            }
        }
    }
    return out;
}

nb::list classes_of(const PortView& port) {
    nb::list out;
    for (std::size_t c = 0; c < switching::traffic_classes; ++c) {
        const auto of_fate = [&](Fate fate) {
            std::uint64_t packets = 0;
            for (const auto& level : port.counters.decisions[c])
                packets += level[static_cast<std::size_t>(fate)].packets;
            return packets;
        };
        nb::dict row;
        row["waiting_bytes"] = port.queues.queue(c).bytes;
        row["max_waiting_bytes"] = port.queues.queue(c).bytes_max;
        row["marked"] = of_fate(Fate::marked);
        row["trimmed"] = of_fate(Fate::trimmed);
        row["queued"] = of_fate(Fate::kept) + of_fate(Fate::marked);
        row["dropped"] = port.counters.dropped[c];
        row["sent"] = port.counters.sent[c].packets;
        row["sent_bytes"] = port.counters.sent[c].bytes;
        out.append(row);
    }
    return out;
}

nb::dict to_dict(const PortView& port) {
    nb::dict out;
    std::uint64_t sent_packets = 0, sent_bytes = 0;
    for (const Count& count : port.counters.sent) {
        sent_packets += count.packets;
        sent_bytes += count.bytes;
    }
    out["rate_bps"] = port.rate_bps;
    out["link"] = port.link;
    out["received_packets"] = port.counters.received.packets;
    out["received_bytes"] = port.counters.received.bytes;
    out["sent_packets"] = sent_packets;
    out["sent_bytes"] = sent_bytes;
    out["leaving_packets"] = port.leaving_packets;
    out["waiting_bytes"] = port.queues.bytes();
    out["max_waiting_bytes"] = port.queues.bytes_max();
    out["chosen"] = port.counters.chosen;
    out["classes"] = classes_of(port);
    out["decisions"] = decisions_of(port.counters.decisions);
    nb::dict drops;
    const Losses& losses = port.counters.losses;
    drops["malformed"] = losses.malformed;
    drops["oversize"] = losses.oversize + port.interface.oversize_packets;
    drops["same_port"] = losses.same_port;
    drops["reserved"] = losses.reserved;
    drops["no_port"] = losses.no_port;
    drops["own_address"] = losses.own_address;
    drops["fault_in"] = losses.fault_in;
    drops["fault_out"] = losses.fault_out;
    drops["overrun"] = port.interface.overrun_packets;
    drops["refused"] = port.interface.refused_packets;
    out["drops"] = drops;
    nb::dict faults;
    faults["in"] = to_dict(port.faults_in);
    faults["out"] = to_dict(port.faults_out);
    out["faults"] = faults;
    out["capture"] = port.capture;
    return out;
}

nb::dict status(SoftSwitch& self) {
    const View view = self.inside([&] { return look(self.core(), self.loop()); });
    nb::dict out;
    out["time_s"] = seconds(view.now);
    out["busy_s"] = seconds(view.loop.busy);
    out["waits"] = view.loop.waits;
    out["frames_used"] = view.frames_used;
    nb::list ports;
    for (const PortView& port : view.ports) ports.append(to_dict(port));
    out["ports"] = ports;
    out["aggregation"] = aggregation_counts(view.aggregation);
    nb::dict addresses;
    addresses["known"] = view.addresses_known;
    addresses["learnt"] = view.addresses.learnt;
    addresses["moved"] = view.addresses.moved;
    addresses["full"] = view.addresses.full;
    out["addresses"] = addresses;
    return out;
}

nb::list samples(SoftSwitch& self, std::uint64_t since, std::size_t most) {
    const std::vector<Sample> found = self.inside([&] { return self.core().samples().since(since, most); });
    nb::list out;
    for (const Sample& sample : found) {
        nb::list waiting, sent, dropped;
        for (std::size_t c = 0; c < switching::traffic_classes; ++c) {
            waiting.append(sample.waiting_bytes[c]);
            sent.append(sample.sent_packets[c]);
            dropped.append(sample.dropped_packets[c]);
        }
        out.append(nb::make_tuple(sample.index, seconds(sample.at), sample.port, waiting, sent, dropped));
    }
    return out;
}

void configure(SoftSwitch& self, const Configuration& configuration) {
    const std::string wrong = self.inside([&] { return self.core().configure(configuration); });
    if (!wrong.empty()) throw std::invalid_argument(wrong);
}

void set_faults(SoftSwitch& self, std::uint32_t port, bool out, double loss_ratio, double burst_packets, bool down,
                std::uint64_t rate_bps, std::uint64_t seed) {
    self.check_port(port);
    const Faults faults{loss_ratio, burst_packets, down, rate_bps, seed};
    if (const std::string wrong = faults.validate(); !wrong.empty()) throw std::invalid_argument(wrong);
    self.inside([&] { self.core().set_faults(port, out, faults); });
}

std::vector<std::tuple<std::uint64_t, std::uint32_t, bool, bool>> addresses(SoftSwitch& self) {
    std::vector<std::tuple<std::uint64_t, std::uint32_t, bool, bool>> out;
    const auto entries = self.inside([&] { return self.core().addresses().entries(monotonic_now()); });
    for (const MacTable::Entry& entry : entries)
        out.emplace_back(entry.mac, entry.target.index, entry.target.is_group, entry.told);
    return out;
}

// A policy of one port; a threshold that is not given is never met.
void bind_port_configuration(nb::module_& m) {
    nb::class_<PortConfiguration>(m, "SwitchPort")
        .def(nb::init<>())
        .def_rw("rate_bps", &PortConfiguration::rate_bps)
        .def(
            "set_thresholds",
            [](PortConfiguration& self, std::size_t traffic_class, std::size_t level,
               std::uint32_t mark_from_bytes, std::uint32_t mark_full_bytes, std::uint16_t mark_ratio,
               std::uint32_t trim_above_bytes, std::uint32_t drop_above_bytes) {
                self.policy.classes.at(traffic_class).level.at(level) = {
                    mark_from_bytes, mark_full_bytes, mark_ratio, trim_above_bytes, drop_above_bytes};
            },
            nb::arg("traffic_class"), nb::arg("level"), nb::arg("mark_from_bytes"), nb::arg("mark_full_bytes"),
            nb::arg("mark_ratio"), nb::arg("trim_above_bytes"), nb::arg("drop_above_bytes"))
        .def(
            "set_buffer",
            [](PortConfiguration& self, std::uint32_t port_bytes, std::uint32_t shared_bytes,
               int shared_alpha_log2) {
                self.policy.port_bytes = port_bytes;
                self.policy.shared_bytes = shared_bytes;
                self.policy.shared_alpha_log2 = static_cast<std::int8_t>(shared_alpha_log2);
            },
            nb::arg("port_bytes"), nb::arg("shared_bytes"), nb::arg("shared_alpha_log2"))
        .def(
            "set_trimmed",
            [](PortConfiguration& self, std::uint8_t traffic_class, std::uint8_t run_packets) {
                self.policy.trimmed_class = traffic_class;
                self.policy.trimmed_run_packets = run_packets;
            },
            nb::arg("traffic_class"), nb::arg("run_packets"))
        .def(
            "set_path_choice",
            [](PortConfiguration& self, const std::string& choice) {
                self.policy.path_choice = choice_of(choice);
            },
            nb::arg("choice"));
}

void bind_configuration(nb::module_& m) {
    nb::class_<Configuration>(m, "SwitchConfiguration")
        .def(nb::init<>())
        .def(
            "set_class",
            [](Configuration& self, std::size_t dscp, std::uint8_t traffic_class) {
                self.classification.class_of_dscp.at(dscp) = traffic_class;
            },
            nb::arg("dscp"), nb::arg("traffic_class"))
        .def(
            "set_foreign_class",
            [](Configuration& self, std::uint8_t traffic_class) {
                self.classification.foreign_class = traffic_class;
            },
            nb::arg("traffic_class"))
        .def(
            "set_trimmed_dscp",
            [](Configuration& self, std::uint8_t dscp) { self.classification.trimmed_dscp = dscp; },
            nb::arg("dscp"))
        .def(
            "add_port", [](Configuration& self, const PortConfiguration& port) { self.ports.push_back(port); },
            nb::arg("port"))
        .def(
            "add_group",
            [](Configuration& self, const std::vector<std::uint16_t>& ports) { self.groups.push_back(ports); },
            nb::arg("ports"))
        .def(
            "add_aggregation_job",
            [](Configuration& self, const switching::AggregationJob& job) { self.aggregation.push_back(job); },
            nb::arg("job"))
        .def(
            "add_address",
            [](Configuration& self, std::uint64_t mac, std::uint16_t index, bool is_group) {
                self.addresses.push_back({mac, {index, is_group}});
            },
            nb::arg("mac"), nb::arg("index"), nb::arg("is_group"));
}

}  // namespace

void bind_softswitch(nb::module_& m) {
    nb::register_exception_translator([](const std::exception_ptr& error, void*) {
        const auto raise = [](int number, const char* what) {
            const nb::object arguments = nb::make_tuple(number, what);
            PyErr_SetObject(PyExc_OSError, arguments.ptr());
        };
        try {
            std::rethrow_exception(error);
        } catch (const PortError& refused) {
            raise(refused.number, refused.what());
        } catch (const std::system_error& refused) {
            raise(refused.code().value(), refused.what());
        }
    });
    m.attr("SWITCH_NEVER") = switching::never;
    m.attr("SWITCH_FATES") = nb::make_tuple("kept", "marked", "trimmed", "dropped_threshold", "dropped_buffer",
                                            "dropped_trimmed", "dropped_memory");
    bind_port_configuration(m);
    bind_configuration(m);
    nb::class_<SoftSwitch>(m, "SoftSwitch")
        .def(
            "__init__",
            [](SoftSwitch* self, const std::vector<std::string>& ports, const Configuration& configuration,
               std::uint32_t frames, std::uint32_t addresses, std::int64_t ageing_ns, std::uint32_t salt,
               std::uint64_t seed, std::uint32_t samples, std::uint32_t ring_frames, bool busy_poll) {
                Settings settings;
                settings.frames = frames;
                settings.addresses = addresses;
                settings.ageing = Time(ageing_ns);
                settings.salt = salt;
                settings.seed = seed;
                settings.samples = samples;
                new (self) SoftSwitch(ports, configuration, settings, ring_frames, busy_poll);
            },
            nb::arg("ports"), nb::arg("configuration"), nb::kw_only(), nb::arg("frames"), nb::arg("addresses"),
            nb::arg("ageing_ns"), nb::arg("salt"), nb::arg("seed"), nb::arg("samples"), nb::arg("ring_frames"),
            nb::arg("busy_poll"))
        .def(
            "run", [](SoftSwitch& self) { self.loop().run(); }, nb::call_guard<nb::gil_scoped_release>())
        .def("stop", [](SoftSwitch& self) { self.loop().stop(); })
        .def(
            "close", [](SoftSwitch& self) { self.loop().close(); }, nb::call_guard<nb::gil_scoped_release>())
        .def("configure", configure, nb::arg("configuration"))
        .def("status", status)
        .def("set_faults", set_faults, nb::arg("port"), nb::arg("out"), nb::kw_only(), nb::arg("loss_ratio"),
             nb::arg("burst_packets"), nb::arg("down"), nb::arg("rate_bps"), nb::arg("seed"))
        .def(
            "set_link",
            [](SoftSwitch& self, std::uint32_t port, bool up) {
                self.check_port(port);
                self.inside([&] { self.loop().set_link(port, up); });
            },
            nb::arg("port"), nb::arg("up"))
        .def(
            "capture",
            [](SoftSwitch& self, std::uint32_t port, const std::string& path) {
                self.check_port(port);
                self.inside([&] { self.loop().capture(port, path); });
            },
            nb::arg("port"), nb::arg("path"))
        .def(
            "sample_every",
            [](SoftSwitch& self, std::int64_t interval_ns) {
                self.inside([&] { self.loop().sample_every(Time(interval_ns)); });
            },
            nb::arg("interval_ns"))
        .def("samples", samples, nb::arg("since"), nb::arg("most"))
        .def("addresses", addresses);
}

}  // namespace dlcp::bind

// The table of settings, and the options of a runtime, which are filled by its names. dlcp.transport.settings is what
// people use.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "bind/bind.hpp"
#include "io/runtime.hpp"

namespace dlcp::bind {
namespace {

constexpr const char* kinds[] = {"boolean", "integer",    "number", "choice",      "text",
                                 "path",    "interfaces", "ports",  "class_codes", "secret"};
constexpr const char* layers[] = {"protocol", "endpoint", "runtime", "job"};
constexpr const char* sections[] = {"Place",    "Packet protection",  "Datagrams and buffers",
                                    "Spraying", "Congestion control", "Timers",
                                    "Bounds",   "Collectives",        "What one can see"};

JobKeyBytes key_of(nb::bytes key) {
    if (key.size() != job_key_bytes)
        throw IoError(IoErrorKind::settings, "the job key has " + std::to_string(key.size()) +
                                                 " bytes; accepted: exactly " + std::to_string(job_key_bytes));
    JobKeyBytes bytes{};
    std::copy_n(static_cast<const std::uint8_t*>(key.data()), bytes.size(), bytes.begin());
    return bytes;
}

nb::object or_none(const SettingValue& value) {
    return std::holds_alternative<std::monostate>(value) ? nb::none() : nb::cast(value);
}

}  // namespace

void bind_options(nb::module_& m) {
    nb::list need_line_rate;
    for (const CongestionEntry& entry : congestion_controllers)
        if (entry.needs_line_rate) need_line_rate.append(nb::str(entry.name.data(), entry.name.size()));
    m.attr("LINE_RATE_CONTROLLERS") = nb::tuple(need_line_rate);
    nb::class_<SettingEntry>(m, "Setting", "One row of the table of settings.")
        .def_prop_ro("name", [](const SettingEntry& e) { return e.setting.name; })
        .def_prop_ro("section",
                     [](const SettingEntry& e) { return sections[static_cast<int>(e.setting.section)]; })
        .def_prop_ro("layer", [](const SettingEntry& e) { return layers[static_cast<int>(e.layer)]; })
        .def_prop_ro("kind",
                     [](const SettingEntry& e) { return kinds[static_cast<int>(e.setting.accepted.kind)]; })
        .def_prop_ro("default", [](const SettingEntry& e) { return or_none(e.initial); })
        .def_prop_ro("none", [](const SettingEntry& e) { return e.setting.none; })
        .def_prop_ro("low", [](const SettingEntry& e) { return e.setting.accepted.low; })
        .def_prop_ro("high", [](const SettingEntry& e) { return e.setting.accepted.high; })
        .def_prop_ro("above", [](const SettingEntry& e) { return e.setting.accepted.above; })
        .def_prop_ro("accepted", [](const SettingEntry& e) { return e.setting.accepted.words; })
        .def_prop_ro("sentence", [](const SettingEntry& e) { return e.setting.sentence; });
    m.def("settings_table", &settings_table, "Every setting, in the order of sections.");

    nb::class_<RuntimeOptions>(m, "RuntimeOptions", "What a runtime is opened with.")
        .def(
            "__init__",
            [](RuntimeOptions* self, std::uint32_t rank, bool announce_unexpected, std::optional<nb::bytes> key,
               std::uint64_t incarnation) {
                new (self) RuntimeOptions();
                self->engine.rank = rank;
                self->engine.announce_unexpected = announce_unexpected;
                self->engine.incarnation = incarnation;
                if (key) self->engine.job_key = key_of(*key);
            },
            nb::arg("rank"), nb::arg("announce_unexpected") = false, nb::arg("key") = nb::none(),
            nb::arg("incarnation") = 0)
        .def_rw("io_thread", &RuntimeOptions::io_thread)
        .def(
            "set",
            [](RuntimeOptions& options, std::string_view name, const SettingValue& value) {
                set_setting(options, name, value);
            },
            nb::arg("name"), nb::arg("value").none());
}

}  // namespace dlcp::bind

// The table of settings as a whole, and how a runtime's options are filled by it.
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "io/runtime_options.hpp"

using namespace dlcp;

TEST_CASE("runtime options: the table has every setting once, section by section") {
    std::set<std::string_view> names;
    SettingSection last = SettingSection::place;
    for (const SettingEntry& entry : settings_table()) {
        CHECK(names.insert(entry.setting.name).second);
        CHECK(entry.setting.section >= last);
        last = entry.setting.section;
    }
    CHECK(names.contains("driver"));
    CHECK(names.contains("eager_bytes"));
    CHECK(names.contains("metrics_port"));
}

TEST_CASE("runtime options: a default is the struct's, or none where the setting has a word for that") {
    for (const SettingEntry& entry : settings_table()) {
        CAPTURE(entry.setting.name);
        CHECK(std::holds_alternative<std::monostate>(entry.initial) == !entry.setting.none.empty());
        if (entry.setting.name == "max_peers") CHECK(entry.initial == SettingValue{std::int64_t{4096}});
        if (entry.setting.name == "min_rto_s") CHECK(entry.initial == SettingValue{200e-6});
    }
}

TEST_CASE("runtime options: a setting fills the field of the runtime or of its engine") {
    RuntimeOptions options;
    set_setting(options, "port", std::int64_t{7000});
    set_setting(options, "linger_s", 1e-3);
    set_setting(options, "min_rto_s", 2e-3);
    set_setting(options, "congestion", std::string("line_rate"));
    set_setting(options, "bind_host", SettingValue{});
    CHECK(options.port == 7000);
    CHECK(options.linger == milliseconds(1));
    CHECK(options.engine.min_rto == milliseconds(2));
    CHECK(options.engine.congestion == congestion_algorithm("line_rate"));
    CHECK(options.bind_host.empty());
}

TEST_CASE("runtime options: offloads that are off are flags of the driver") {
    RuntimeOptions options;
    CHECK(options.io_flags() == 0);
    set_setting(options, "segmentation_offload", false);
    CHECK(options.io_flags() == DLCP_IO_NO_GSO);
    set_setting(options, "receive_offload", false);
    CHECK(options.io_flags() == (DLCP_IO_NO_GSO | DLCP_IO_NO_GRO));
}

TEST_CASE("runtime options: a setting that only a job has is refused") {
    RuntimeOptions options;
    CHECK_THROWS_WITH_AS(set_setting(options, "shm", true), "no runtime has a setting shm", std::invalid_argument);
}

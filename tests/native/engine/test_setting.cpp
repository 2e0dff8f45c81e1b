// How a setting's value gets into a field and out of it, by its row.
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "engine/config.hpp"

using namespace dlcp;

namespace {

template <class Rows>
const SettingRow<EndpointConfig>& row(const Rows& rows, std::string_view name) {
    for (const auto& each : rows)
        if (each.setting.name == name) return each;
    throw std::logic_error("no such row");
}

SettingValue round_trip(EndpointConfig& config, std::string_view name, const SettingValue& value) {
    const auto& each = row(protocol_settings, name);
    each.set(config, each.setting, value);
    return each.get(config, each.setting);
}

}  // namespace

TEST_CASE("setting: every name is there once, ends with its unit and says a sentence") {
    std::set<std::string_view> names;
    const auto look = [&](const auto& rows) {
        for (const auto& each : rows) {
            CHECK(names.insert(each.setting.name).second);
            CHECK(each.setting.sentence.ends_with('.'));
        }
    };
    look(protocol_settings);
    look(endpoint_settings);
}

TEST_CASE("setting: seconds become nanoseconds, and more than nothing stays more than nothing") {
    EndpointConfig config;
    CHECK(round_trip(config, "min_rto_s", 2e-3) == SettingValue{2e-3});
    CHECK(config.min_rto == milliseconds(2));
    round_trip(config, "min_rto_s", 1e-12);
    CHECK(config.min_rto == nanoseconds(1));
    round_trip(config, "max_ack_delay_s", std::int64_t{0});
    CHECK(config.max_ack_delay == nanoseconds(0));
}

TEST_CASE("setting: bytes, counts and choices") {
    EndpointConfig config;
    CHECK(round_trip(config, "eager_bytes", std::int64_t{1000}) == SettingValue{std::int64_t{1000}});
    CHECK(config.eager == Bytes{1000});
    CHECK(round_trip(config, "congestion", std::string("window")) == SettingValue{std::string("window")});
    CHECK(config.congestion == congestion_algorithm("window"));
    round_trip(config, "paths", SettingValue{});
    CHECK(config.paths == 0);
}

TEST_CASE("setting: a value of another type, or an unknown choice, is refused") {
    EndpointConfig config;
    CHECK_THROWS_AS(round_trip(config, "paths", std::string("8")), std::invalid_argument);
    CHECK_THROWS_AS(round_trip(config, "congestion", std::string("cubic")), std::invalid_argument);
    CHECK_THROWS_AS(round_trip(config, "congestion", std::int64_t{0}), std::invalid_argument);
}

TEST_CASE("setting: choices stand in the order of the enumeration") {
    CHECK(choice_at("auto, window, line_rate", 0) == "auto");
    CHECK(choice_at("auto, window, line_rate", 2) == "line_rate");
    CHECK(choice_at("auto, window, line_rate", 3) == "");
}

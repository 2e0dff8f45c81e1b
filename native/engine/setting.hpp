// What a row in the table of settings contains, and how its value moves into a struct and out of it.
//
// A setting is one row beside the field that it fills: the engine's in config.hpp, those of the runtime and of a job in
// io/runtime_options.hpp. The rows generate the engine's own check (config.cpp), Python's `Settings`, the variables
// DLCP_*, the simulator's settings of transport "dlcp", `dlcp settings` and docs/settings.md. Only the struct contains
// the default.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "engine/units.hpp"

namespace dlcp {

using ClassCodes = std::array<std::uint8_t, 8>;

// In the unit of the setting's name: a Duration in seconds, a choice by name. monostate: determined when the endpoint
// opens.
using SettingValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, ClassCodes>;

enum class SettingKind : std::uint8_t {
    boolean,
    integer,
    number,
    choice,
    text,
    path,         // of a file or folder; its bytes need not be UTF-8
    interfaces,   // a pattern of interface names (dlcp/transport/interfaces.py)
    ports,        // "low-high"
    class_codes,  // a DSCP per traffic class
    secret,       // bytes that are never shown, and never read from the environment or a file of settings
};

// The groups of rows in help and in the reference page, in this order.
enum class SettingSection : std::uint8_t {
    place,
    protection,
    datagrams,
    spraying,
    congestion,
    timers,
    bounds,
    collectives,
    observing,
};

enum class SettingLayer : std::uint8_t {
    protocol,  // how the engine sends and receives; the simulator's hosts have these too
    endpoint,  // the engine: its identity, keys and bounds
    runtime,   // driver, sockets, threads
    job,       // Python alone
};

// Which values are accepted.
struct Accepted {
    SettingKind kind;
    double low = 0;  // of numbers, in the setting's unit
    double high = 0;
    bool above = false;           // `low` itself is refused
    std::string_view words = {};  // the choices, separated by ", "; of a text: what it should be
};

namespace accept {
constexpr Accepted boolean() { return {SettingKind::boolean}; }
constexpr Accepted integer(double low, double high) { return {SettingKind::integer, low, high}; }
constexpr Accepted number(double low, double high) { return {SettingKind::number, low, high}; }
constexpr Accepted above(double low, double high) { return {SettingKind::number, low, high, true}; }
constexpr Accepted one_of(std::string_view choices) { return {SettingKind::choice, 0, 0, false, choices}; }
constexpr Accepted text(std::string_view what) { return {SettingKind::text, 0, 0, false, what}; }
constexpr Accepted path(std::string_view what) { return {SettingKind::path, 0, 0, false, what}; }
constexpr Accepted special(SettingKind kind) { return {kind}; }
}  // namespace accept

struct Setting {
    SettingSection section;
    std::string_view name;  // unit last; the environment variable is DLCP_ and this in capitals
    Accepted accepted;
    std::string_view sentence;
    // The name of "no value": "auto" or "off". The default is then no value, whatever the struct has. Empty: there is
    // always a value.
    std::string_view none = {};
};

// Names of a choice, in the order of the enumeration.
constexpr std::string_view choice_at(std::string_view words, std::size_t index) {
    for (; index > 0; --index) {
        const std::size_t comma = words.find(", ");
        if (comma == std::string_view::npos) return {};
        words.remove_prefix(comma + 2);
    }
    return words.substr(0, words.find(", "));
}

template <class Field>
SettingValue setting_value(const Field& field, const Setting& setting) {
    if constexpr (std::same_as<Field, Duration>) {
        return static_cast<double>(field.value) / 1e9;
    } else if constexpr (std::same_as<Field, Bytes>) {
        return static_cast<std::int64_t>(field.value);
    } else if constexpr (std::same_as<Field, Rate>) {
        return static_cast<std::int64_t>(field.value_bps);
    } else if constexpr (std::is_enum_v<Field>) {
        return std::string(choice_at(setting.accepted.words, static_cast<std::size_t>(field)));
    } else if constexpr (std::integral<Field> && !std::same_as<Field, bool>) {
        return static_cast<std::int64_t>(field);
    } else {
        return field;
    }
}

// Throws std::invalid_argument if the type is not the setting's. The code that takes the struct checks the range.
template <class Field>
void set_field(Field& field, const Setting& setting, const SettingValue& value) {
    const auto number = [&]() -> double {
        if (const auto* given = std::get_if<std::int64_t>(&value)) return static_cast<double>(*given);
        if (const auto* given = std::get_if<double>(&value)) return *given;
        throw std::invalid_argument(std::string(setting.name) + " is not a number");
    };
    const auto as = [&]<class Type>(std::type_identity<Type>) -> const Type& {
        if (const auto* given = std::get_if<Type>(&value)) return *given;
        throw std::invalid_argument(std::string(setting.name) + " has another type");
    };
    if (std::holds_alternative<std::monostate>(value)) {
        field = Field{};
    } else if constexpr (std::same_as<Field, Duration>) {
        // A positive value stays positive.
        const double ns = number() * 1e9;
        field = Duration{ns > 0 ? std::max<std::int64_t>(1, std::llround(ns)) : 0};
    } else if constexpr (std::same_as<Field, Bytes>) {
        field = Bytes{static_cast<std::uint64_t>(number())};
    } else if constexpr (std::same_as<Field, Rate>) {
        field = Rate{static_cast<std::uint64_t>(number())};
    } else if constexpr (std::is_enum_v<Field>) {
        const std::string& word = as(std::type_identity<std::string>{});
        std::size_t index = 0;
        while (!choice_at(setting.accepted.words, index).empty() &&
               choice_at(setting.accepted.words, index) != word)
            ++index;
        if (choice_at(setting.accepted.words, index).empty())
            throw std::invalid_argument(std::string(setting.name) + " is " + word +
                                        "; accepted: " + std::string(setting.accepted.words));
        field = static_cast<Field>(index);
    } else if constexpr (std::floating_point<Field> || (std::integral<Field> && !std::same_as<Field, bool>)) {
        field = static_cast<Field>(number());
    } else {
        field = as(std::type_identity<Field>{});
    }
}

// One row of a struct's table: the setting, and how it is read from the struct and written to it.
template <class Owner>
struct SettingRow {
    Setting setting;
    SettingValue (*get)(const Owner&, const Setting&);
    void (*set)(Owner&, const Setting&, const SettingValue&);
};

namespace detail {
template <class Owner, class Field>
Owner owner_of(Field Owner::*);
}

template <auto Member>
constexpr auto setting_row(Setting setting) {
    using Owner = decltype(detail::owner_of(Member));
    return SettingRow<Owner>{
        setting, [](const Owner& owner, const Setting& s) { return setting_value(owner.*Member, s); },
        [](Owner& owner, const Setting& s, const SettingValue& value) { set_field(owner.*Member, s, value); }};
}

}  // namespace dlcp

// The settings of a transport, each said once.
//
// A transport has a struct `Settings` whose member initialisers are the defaults, and whose `list` names each member
// with its range and a sentence, one row per setting. The same rows check what a scenario gives, and are the table
// from which Python makes its classes, their help and their types (dlcp_sim.transports). Ends of ranges are included.
//
// Names have units last. Times are whole picoseconds, named `_ps`; Python shows them in seconds, named `_s`. A member
// that is a std::optional follows from the fabric or from other settings unless it is given; its sentence says how.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlcp::sim {

class Transport;

// What a scenario gives, by name. A flag is 0 or 1, a choice its place in the row.
using Parameters = std::map<std::string, double>;

// One row of a transport's table.
struct TransportSetting {
    enum class Kind : std::uint8_t { whole, number, flag, choice };
    std::string name;
    Kind kind;
    std::optional<double> otherwise;  // the default; empty: it follows from others
    double minimum;
    double maximum;  // infinite: no bound
    std::vector<std::string> choices;
    std::string sentence;
};

class SettingsTable {
public:
    static constexpr double unbounded = std::numeric_limits<double>::infinity();

    SettingsTable(std::string transport, Parameters given)
        : transport_(std::move(transport)), given_(std::move(given)) {}

    // The rows. Each throws std::invalid_argument if what was given is out of range.
    template <std::integral Whole>
    void whole(const char* name, Whole& member, double minimum, double maximum, const char* sentence) {
        const auto value = row({name, Kind::whole, static_cast<double>(member), minimum, maximum, {}, sentence});
        if (value) member = static_cast<Whole>(*value);
    }
    template <std::integral Whole>
    void whole(const char* name, std::optional<Whole>& member, double minimum, double maximum,
               const char* sentence) {
        const auto value = row({name, Kind::whole, {}, minimum, maximum, {}, sentence});
        if (value) member = static_cast<Whole>(*value);
    }
    void number(const char* name, double& member, double minimum, double maximum, const char* sentence) {
        member = row({name, Kind::number, member, minimum, maximum, {}, sentence}).value_or(member);
    }
    void number(const char* name, std::optional<double>& member, double minimum, double maximum,
                const char* sentence) {
        if (const auto value = row({name, Kind::number, {}, minimum, maximum, {}, sentence})) member = value;
    }
    void flag(const char* name, bool& member, const char* sentence) {
        const auto value = row({name, Kind::flag, member ? 1.0 : 0.0, 0, 1, {}, sentence});
        if (value) member = *value != 0;
    }
    void flag(const char* name, std::optional<bool>& member, const char* sentence) {
        if (const auto value = row({name, Kind::flag, {}, 0, 1, {}, sentence})) member = *value != 0;
    }
    template <class Enum>
    void choice(const char* name, Enum& member, std::initializer_list<const char*> names, const char* sentence) {
        const auto last = static_cast<double>(names.size() - 1);
        const auto value = row({name, Kind::choice, static_cast<double>(member), 0, last,
                                std::vector<std::string>(names.begin(), names.end()), sentence});
        if (value) member = static_cast<Enum>(static_cast<std::uint8_t>(*value));
    }

    // A packet's size on the wire has 16 bits.
    void check_packet(std::uint32_t payload_bytes, std::uint32_t header_bytes) const;
    void check_power_of_two(const char* name, std::uint32_t value) const;
    [[noreturn]] void refuse(const std::string& name, double value, const std::string& accepted) const;
    // After the last row: throws if something was given that has no row.
    void done() const;

    const std::vector<TransportSetting>& rows() const { return rows_; }

    // Any row: keeps it, and returns the value that was given for it, checked.
    std::optional<double> row(TransportSetting setting);

private:
    using Kind = TransportSetting::Kind;

    std::string transport_;
    Parameters given_;
    std::vector<TransportSetting> rows_;
};

// A transport that scenarios can name. Each stands once, in the file of the transport:
//
//     const TransportKind uet = TransportKind::of<Uet>("uet");
//
// Uet has `Settings` and a constructor that takes them.
class TransportKind {
public:
    template <class Made, class Settings = typename Made::Settings>
    static TransportKind of(const char* name) {
        return {name, [](SettingsTable& table) -> std::unique_ptr<Transport> {
                    Settings settings;
                    settings.list(table);
                    table.done();
                    return std::make_unique<Made>(settings);
                }};
    }

    // By name. Throws std::invalid_argument, naming what is accepted.
    static const TransportKind& named(const std::string& name);
    static std::vector<std::string> names();  // sorted

    std::unique_ptr<Transport> make(Parameters parameters) const;
    std::vector<TransportSetting> settings() const;

private:
    using Make = std::unique_ptr<Transport> (*)(SettingsTable&);
    TransportKind(const char* name, Make make);

    static std::map<std::string, TransportKind>& all();

    std::string name_;
    Make make_;
};

// Throws std::invalid_argument for a name or a setting that is not accepted.
std::unique_ptr<Transport> make_transport(const std::string& name, Parameters parameters);

}  // namespace dlcp::sim

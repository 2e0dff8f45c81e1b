// Settings of transports: reading and refusing them, and the list of all transports.
#include "sim/core/transport_settings.hpp"

#include <bit>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "sim/core/transport.hpp"

namespace dlcp::sim {
namespace {

std::string text_of(double value) {
    std::ostringstream out;
    out.precision(12);
    out << value;
    return out.str();
}

std::string accepted(const TransportSetting& setting) {
    if (!setting.choices.empty()) {
        std::string names;
        for (std::size_t i = 0; i < setting.choices.size(); ++i)
            names += (i == 0 ? "" : ", ") + std::to_string(i) + " " + setting.choices[i];
        return names;
    }
    const std::string kind = setting.kind == TransportSetting::Kind::number ? "numbers" : "whole numbers";
    if (setting.maximum == SettingsTable::unbounded) return kind + " from " + text_of(setting.minimum);
    return kind + " from " + text_of(setting.minimum) + " to " + text_of(setting.maximum);
}

}  // namespace

std::optional<double> SettingsTable::row(TransportSetting setting) {
    rows_.push_back(std::move(setting));
    const TransportSetting& added = rows_.back();
    const auto found = given_.find(added.name);
    if (found == given_.end()) return std::nullopt;
    const double value = found->second;
    given_.erase(found);
    const bool whole = added.kind == Kind::number || value == std::floor(value);
    if (!std::isfinite(value) || !whole || value < added.minimum || value > added.maximum)
        refuse(added.name, value, accepted(added));
    return value;
}

void SettingsTable::check_packet(std::uint32_t payload_bytes, std::uint32_t header_bytes) const {
    const std::uint32_t both = payload_bytes + header_bytes;
    if (both > UINT16_MAX) refuse("payload_bytes + header_bytes", both, "at most 65535");
}

void SettingsTable::check_power_of_two(const char* name, std::uint32_t value) const {
    if (!std::has_single_bit(value)) refuse(name, value, "powers of two");
}

void SettingsTable::refuse(const std::string& name, double value, const std::string& accepted) const {
    throw std::invalid_argument(transport_ + "." + name + " is " + text_of(value) + "; accepted: " + accepted);
}

void SettingsTable::done() const {
    if (!given_.empty())
        throw std::invalid_argument("transport \"" + transport_ + "\" has no setting \"" + given_.begin()->first +
                                    "\"");
}

TransportKind::TransportKind(const char* name, Make make) : name_(name), make_(make) {
    all().emplace(name, *this);
}

// A function's, so that it is there before the first transport's file is initialised, in whatever order that is.
std::map<std::string, TransportKind>& TransportKind::all() {
    static std::map<std::string, TransportKind> kinds;
    return kinds;
}

std::vector<std::string> TransportKind::names() {
    std::vector<std::string> names;
    for (const auto& [name, kind] : all()) names.push_back(name);
    return names;
}

const TransportKind& TransportKind::named(const std::string& name) {
    const auto found = all().find(name);
    if (found != all().end()) return found->second;
    std::string known;
    for (const std::string& each : names()) known += (known.empty() ? "" : ", ") + each;
    throw std::invalid_argument("transport \"" + name + "\" is unknown; accepted: " + known);
}

std::unique_ptr<Transport> TransportKind::make(Parameters parameters) const {
    SettingsTable table(name_, std::move(parameters));
    return make_(table);
}

std::vector<TransportSetting> TransportKind::settings() const {
    SettingsTable table(name_, {});
    make_(table);
    return table.rows();
}

std::unique_ptr<Transport> make_transport(const std::string& name, Parameters parameters) {
    return TransportKind::named(name).make(std::move(parameters));
}

}  // namespace dlcp::sim

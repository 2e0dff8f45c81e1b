// Names of transports, as scenarios give them.
#include "sim/core/transports/registry.hpp"

#include <cmath>
#include <stdexcept>

namespace dlcp::sim {
namespace {

struct Entry {
    const char* name;
    std::unique_ptr<Transport> (*make)(Parameters);
};

constexpr Entry entries[] = {
    {"line_rate", make_line_rate},
    {"tcp", make_tcp},
    {"dctcp", make_dctcp},
    {"pfabric", make_pfabric},
    {"ndp", make_ndp},
    {"dcqcn", make_dcqcn},
    {"uet", make_uet},
    {"dlcp", make_dlcp},
};

}  // namespace

std::unique_ptr<Transport> make_transport(const std::string& name, Parameters parameters) {
    std::string known;
    for (const Entry& entry : entries) {
        if (name == entry.name) return entry.make(std::move(parameters));
        known += known.empty() ? entry.name : std::string(", ") + entry.name;
    }
    throw std::invalid_argument("transport \"" + name + "\" is unknown; accepted: " + known);
}

void Transport::start_collective(Domain&, std::uint32_t, std::uint32_t, std::uint32_t) {
    throw std::invalid_argument("this transport runs no collectives by itself; build them of flows");
}

double Parameters::take(const std::string& name, double otherwise) {
    const auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    const double value = found->second;
    values_.erase(found);
    if (!std::isfinite(value)) throw std::invalid_argument(name + " is not a finite number");
    return value;
}

std::int64_t Parameters::take_integer(const std::string& name, std::int64_t otherwise) {
    const double value = take(name, static_cast<double>(otherwise));
    if (value != std::floor(value) || std::abs(value) > 9e15)
        throw std::invalid_argument(name + " is " + std::to_string(value) + "; accepted: whole numbers");
    return static_cast<std::int64_t>(value);
}

void Parameters::done(const std::string& transport) const {
    if (!values_.empty())
        throw std::invalid_argument("transport \"" + transport + "\" has no setting \"" + values_.begin()->first +
                                    "\"");
}

}  // namespace dlcp::sim

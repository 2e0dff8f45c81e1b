// The controllers that a session can be made with, in one table.
//
// The values of EndpointConfig::congestion, their range, their names in settings and the error texts come from here. A
// controller stands in a file of its own beside this one: declare what makes it, and give it a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "engine/congestion/congestion.hpp"

namespace dlcp {

// A controller for a session whose datagrams have at most `datagram_bytes`.
using MakeCongestionControl = std::unique_ptr<CongestionControl>(const EndpointConfig& config,
                                                                 std::uint16_t datagram_bytes);
MakeCongestionControl make_window_control, make_line_rate_control, make_credit_control;

struct CongestionEntry {
    std::string_view name;
    std::string_view summary;
    bool needs_line_rate;  // EndpointConfig::line_rate must be set
    MakeCongestionControl* make;
};

// The first is the default.
inline constexpr CongestionEntry congestion_controllers[] = {
    {"window", "a window on ECN marks and median delay", false, make_window_control},
    {"line_rate", "line rate, halved when more is lost than is tolerated", true, make_line_rate_control},
    {"credit", "the receiver grants bytes at its own line rate, for incast", true, make_credit_control},
};

// A controller, as its place in the table.
enum class CongestionAlgorithm : std::uint8_t {};

// The controller of this name; one past the table's end, which no endpoint accepts, if there is none.
constexpr CongestionAlgorithm congestion_algorithm(std::string_view name) {
    std::size_t i = 0;
    while (i < std::size(congestion_controllers) && congestion_controllers[i].name != name) ++i;
    return static_cast<CongestionAlgorithm>(i);
}

// "0 window, 1 line_rate, …", for error texts.
std::string congestion_choices();

}  // namespace dlcp

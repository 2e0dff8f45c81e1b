// The controllers that a session can be made with, in one table.
//
// From here come the values of EndpointConfig::congestion, their range, their names in settings and the error texts.
// Each controller has its own file beside this one: declare its factory, and add a row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "engine/congestion/congestion.hpp"

namespace dlcp {

// A controller for a session whose datagrams have at most `datagram_bytes`. `base_rtt`: as the handshake measured it; 0:
// not known yet.
using MakeCongestionControl = std::unique_ptr<CongestionControl>(const EndpointConfig& config,
                                                                 std::uint16_t datagram_bytes, Duration base_rtt);
MakeCongestionControl make_window_control, make_line_rate_control, make_auto_control;

struct CongestionEntry {
    std::string_view name;
    std::string_view summary;
    bool needs_line_rate;  // EndpointConfig::line_rate must be set
    bool gives_turns;      // as a receiver it shares its line by turns (turn_scheduler.hpp)
    MakeCongestionControl* make;
};

// The first is the default.
inline constexpr CongestionEntry congestion_controllers[] = {
    {"auto", "window, and turns given by a receiver whose line several senders fill", false, true,
     make_auto_control},
    {"window", "a window on ECN marks and median delay", false, false, make_window_control},
    {"line_rate", "line rate, halved when more is lost than is tolerated", true, false, make_line_rate_control},
};

// A controller, as its place in the table.
enum class CongestionAlgorithm : std::uint8_t {};

// The controller of this name. Without one: the value past the end of the table, which no endpoint accepts.
constexpr CongestionAlgorithm congestion_algorithm(std::string_view name) {
    std::size_t i = 0;
    while (i < std::size(congestion_controllers) && congestion_controllers[i].name != name) ++i;
    return static_cast<CongestionAlgorithm>(i);
}

// Each entry's `text`, joined with ", " or "; " (then "." at the end); built at compile time.
template <auto Text, std::size_t Separator>
struct JoinedControllers {
    static constexpr std::string_view separator = Separator == 0 ? ", " : "; ";
    static constexpr std::string_view end = Separator == 0 ? "" : ".";
    static constexpr std::size_t size = [] {
        std::size_t sum = 0;
        for (const CongestionEntry& entry : congestion_controllers)
            for (const std::string_view part : Text(entry)) sum += part.size();
        return sum + separator.size() * (std::size(congestion_controllers) - 1) + end.size();
    }();
    static constexpr std::array<char, size> characters = [] {
        std::array<char, size> joined{};
        std::size_t at = 0;
        const auto append = [&](std::string_view part) {
            for (const char c : part) joined[at++] = c;
        };
        for (const CongestionEntry& entry : congestion_controllers) {
            if (at > 0) append(separator);
            for (const std::string_view part : Text(entry)) append(part);
        }
        append(end);
        return joined;
    }();
    static constexpr std::string_view text{characters.data(), size};
};
// "window, auto, …", and "window: what it is; line_rate: …".
inline constexpr std::string_view congestion_names =
    JoinedControllers<[](const CongestionEntry& e) { return std::array{e.name}; }, 0>::text;
inline constexpr std::string_view congestion_summaries = JoinedControllers<[](const CongestionEntry& e) {
    return std::array<std::string_view, 3>{e.name, ": ", e.summary};
},
                                                                           1>::text;

}  // namespace dlcp

// A receive and the message for it: either comes first, and the other joins it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/state_machine.hpp"

namespace dlcp {

struct IncomingStates {
    enum class State : std::uint8_t {
        unused,      // neither
        posted,      // a receive waits for its message
        unexpected,  // a message without a receive arrives
        receiving,   // a message arrives for its receive
        unclaimed,   // the message is over and kept for a receive
        over,        // the application has had the final event
        dropped,     // the message is discarded
    };
    enum class Event : std::uint8_t {
        post,      // a receive is posted
        arrive,    // the first packet of the message
        claim,     // a receive for a message that is here, or partly here
        complete,  // a message without a receive ends well
        end,       // a receive ends, well or not
        drop,      // a message without a receive fails or is discarded
    };
    static constexpr std::string_view name = "incoming_message";
    static constexpr auto state_names = std::to_array<std::string_view>(
        {"unused", "posted", "unexpected", "receiving", "unclaimed", "over", "dropped"});
    static constexpr auto event_names =
        std::to_array<std::string_view>({"post", "arrive", "claim", "complete", "end", "drop"});
    static constexpr State initial = State::unused;
    static constexpr auto transitions = std::to_array<Transition<State, Event>>({
        {State::unused, Event::post, State::posted},
        {State::unused, Event::arrive, State::unexpected},
        {State::posted, Event::arrive, State::receiving},
        {State::posted, Event::end, State::over},
        {State::unexpected, Event::claim, State::receiving},
        {State::unexpected, Event::complete, State::unclaimed},
        {State::unexpected, Event::drop, State::dropped},
        {State::receiving, Event::end, State::over},
        {State::unclaimed, Event::claim, State::over},
        {State::unclaimed, Event::drop, State::dropped},
    });
};
using IncomingState = StateMachine<IncomingStates>;

}  // namespace dlcp

// The states of an outgoing message.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/state_machine.hpp"

namespace dlcp {

struct OutgoingStates {
    enum class State : std::uint8_t {
        waiting,     // for the session, or for an earlier message of the same tag
        sending,     // in a send queue, or all sent and not known to be over
        held,        // the receiver has no room: nothing is sent until it says so
        cancelling,  // given up, final event reported; waits until the receiver knows
        over,        // final event reported; kept for outcome() until release
    };
    enum class Event : std::uint8_t {
        start,    // the session is up, and no earlier message of the tag is under way
        suspend,  // the session ended before anything was sent
        hold,     // the receiver asks to wait
        proceed,  // the receiver has room
        cancel,   // the application gives up what was sent in part
        finish,   // the receiver knows how it ended, or it failed
    };
    static constexpr std::string_view name = "outgoing_message";
    static constexpr auto state_names =
        std::to_array<std::string_view>({"waiting", "sending", "held", "cancelling", "over"});
    static constexpr auto event_names =
        std::to_array<std::string_view>({"start", "suspend", "hold", "proceed", "cancel", "finish"});
    static constexpr State initial = State::waiting;
    static constexpr auto transitions = std::to_array<Transition<State, Event>>({
        {State::waiting, Event::start, State::sending},
        {State::waiting, Event::finish, State::over},
        {State::sending, Event::suspend, State::waiting},
        {State::sending, Event::hold, State::held},
        {State::sending, Event::cancel, State::cancelling},
        {State::sending, Event::finish, State::over},
        {State::held, Event::proceed, State::sending},
        {State::held, Event::cancel, State::cancelling},
        {State::held, Event::finish, State::over},
        {State::cancelling, Event::finish, State::over},
    });
};
using OutgoingState = StateMachine<OutgoingStates>;

}  // namespace dlcp

// What a receiver knows about one message id of the peer, and how it answers questions about it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/state_machine.hpp"

namespace dlcp {

struct IncomingIdStates {
    enum class State : std::uint8_t {
        unknown,    // no packet yet
        active,     // the message is arriving
        delivered,  // over: every block is here, or the sender does not need the outcome
        abandoned,  // over: the outcome says which blocks were abandoned
        refused,    // over: the receiver will not accept it
        held,       // no room: the sender waits
    };
    enum class Event : std::uint8_t {
        open,       // the first packet, and there is room
        hold,       // the first packet, and there is no room
        make_room,  // there is room by now
        deliver,    // the message ended whole, or its sender gave it up
        abandon,    // the message ended with blocks missing
        refuse,     // this side gave it up
        cancel,     // its sender gave it up before it was opened
    };
    static constexpr std::string_view name = "incoming_id";
    static constexpr auto state_names =
        std::to_array<std::string_view>({"unknown", "active", "delivered", "abandoned", "refused", "held"});
    static constexpr auto event_names =
        std::to_array<std::string_view>({"open", "hold", "make_room", "deliver", "abandon", "refuse", "cancel"});
    static constexpr State initial = State::unknown;
    static constexpr auto transitions = std::to_array<Transition<State, Event>>({
        {State::unknown, Event::open, State::active},
        {State::unknown, Event::hold, State::held},
        {State::unknown, Event::cancel, State::delivered},
        {State::held, Event::make_room, State::unknown},
        {State::held, Event::cancel, State::delivered},
        {State::active, Event::deliver, State::delivered},
        {State::active, Event::abandon, State::abandoned},
        {State::active, Event::refuse, State::refused},
    });
};
using IncomingIdState = StateMachine<IncomingIdStates>;

}  // namespace dlcp

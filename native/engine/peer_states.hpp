// The states of an endpoint's relation to one peer. A session (session.hpp) exists exactly in state established.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/state_machine.hpp"

namespace dlcp {

struct PeerStates {
    enum class State : std::uint8_t {
        idle,         // nothing to do: no packets
        connecting,   // sending hellos
        established,  // there is a session
        gone,         // the session, or the attempt at one, ended; a hello or a command starts another
    };
    enum class Event : std::uint8_t {
        connect,  // a command needs the peer
        prove,    // an authentic packet shows that the peer has this side's session id
        replace,  // the peer has restarted and proved its new session
        stop,     // the application no longer needs the peer
        end,      // a goodbye, a timeout, or the peer's process has ended
    };
    static constexpr std::string_view name = "peer";
    static constexpr auto state_names =
        std::to_array<std::string_view>({"idle", "connecting", "established", "gone"});
    static constexpr auto event_names =
        std::to_array<std::string_view>({"connect", "prove", "replace", "stop", "end"});
    static constexpr State initial = State::idle;
    static constexpr auto transitions = std::to_array<Transition<State, Event>>({
        {State::idle, Event::connect, State::connecting},
        {State::idle, Event::prove, State::established},
        {State::connecting, Event::prove, State::established},
        {State::connecting, Event::stop, State::idle},
        {State::connecting, Event::end, State::gone},
        {State::established, Event::replace, State::established},
        {State::established, Event::end, State::gone},
        {State::gone, Event::connect, State::connecting},
        {State::gone, Event::prove, State::established},
    });
};
using PeerState = StateMachine<PeerStates>;

}  // namespace dlcp

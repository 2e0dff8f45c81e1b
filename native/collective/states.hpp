// The states of an operation and of a group, and what leads from one to another: how a collective fails.
//
// Each struct is a table of engine/state_machine.hpp, and no other place changes these states. Numbers that go with a
// state (a deadline, which rank is absent) are in operation.hpp and group.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/state_machine.hpp"

namespace dlcp {

// An operation, from its start until its result can be polled.
struct OperationStates {
    enum class State : std::uint8_t {
        running,  // nothing is known to be wrong
        accused,  // another rank blames this one, which waits in this operation and asks the ranks that it waits for
        doomed,  // a peer has stopped its part; fails at the deadline unless the reason is announced before
        failed,  // the result stands; the engine has still messages of it
        over,    // the engine has no message of it; the result can be polled
    };
    enum class Event : std::uint8_t {
        peer_stopped,    // a peer cancelled a message of this operation, or closed while one was awaited
        accusation,      // a failure notice blames this rank
        failure,         // this operation or its group has failed
        completion,      // all of its steps and messages are over
        messages_ended,  // after a failure: the last message has had its final event
    };
    static constexpr std::string_view name = "operation";
    static constexpr std::array<std::string_view, 5> state_names = {"running", "accused", "doomed", "failed",
                                                                    "over"};
    static constexpr std::array<std::string_view, 5> event_names = {"peer_stopped", "accusation", "failure",
                                                                    "completion", "messages_ended"};
    static constexpr State initial = State::running;
    static constexpr auto transitions =
        std::to_array<Transition<State, Event>>({{State::running, Event::completion, State::over},
                                                 {State::running, Event::peer_stopped, State::doomed},
                                                 {State::running, Event::accusation, State::accused},
                                                 {State::running, Event::failure, State::failed},
                                                 {State::doomed, Event::peer_stopped, State::doomed},
                                                 {State::doomed, Event::accusation, State::accused},
                                                 {State::doomed, Event::failure, State::failed},
                                                 {State::accused, Event::completion, State::over},
                                                 {State::accused, Event::failure, State::failed},
                                                 {State::failed, Event::messages_ended, State::over}});
};

// Whether the ranks that an operation waits for have been asked, and on whose behalf.
struct InquiryStates {
    enum class State : std::uint8_t {
        quiet,              // nobody has been asked
        asking_for_others,  // asked since another rank asked this one; its own time is not up
        asking,             // asked since its own time is up, or since it is accused
    };
    enum class Event : std::uint8_t { question, time_up, accusation };
    static constexpr std::string_view name = "inquiry";
    static constexpr std::array<std::string_view, 3> state_names = {"quiet", "asking_for_others", "asking"};
    static constexpr std::array<std::string_view, 3> event_names = {"question", "time_up", "accusation"};
    static constexpr State initial = State::quiet;
    static constexpr auto transitions = std::to_array<Transition<State, Event>>(
        {{State::quiet, Event::question, State::asking_for_others},
         {State::quiet, Event::time_up, State::asking},
         {State::quiet, Event::accusation, State::asking},
         {State::asking_for_others, Event::question, State::asking_for_others},  // asks anew
         {State::asking_for_others, Event::time_up, State::asking},
         {State::asking_for_others, Event::accusation, State::asking},
         {State::asking, Event::accusation, State::asking}});
};

// What is known of the rank that an operation waits for in the end (GroupOperation::absent_rank).
struct AbsenceStates {
    enum class State : std::uint8_t {
        unknown,     // no rank is known to be absent
        not_called,  // it answers, and has not called this collective: it may only be late
        silent,      // it does not answer at all
    };
    enum class Event : std::uint8_t { said_not_called, no_answer };
    static constexpr std::string_view name = "absence";
    static constexpr std::array<std::string_view, 3> state_names = {"unknown", "not_called", "silent"};
    static constexpr std::array<std::string_view, 2> event_names = {"said_not_called", "no_answer"};
    static constexpr State initial = State::unknown;
    static constexpr auto transitions =
        std::to_array<Transition<State, Event>>({{State::unknown, Event::said_not_called, State::not_called},
                                                 {State::unknown, Event::no_answer, State::silent},
                                                 {State::not_called, Event::no_answer, State::silent}});
};

// A group on this rank. It fails as a whole and once.
struct GroupStates {
    enum class State : std::uint8_t {
        open,            // operations start and end
        failed,          // operations end with the failure (Group::failed_from); members are notified of it
        closing,         // as failed, and freed once the engine has let go of its messages
        closing_quietly  // closed by this rank without notifying the members
    };
    enum class Event : std::uint8_t { failure, close, close_quietly };
    static constexpr std::string_view name = "group";
    static constexpr std::array<std::string_view, 4> state_names = {"open", "failed", "closing",
                                                                    "closing_quietly"};
    static constexpr std::array<std::string_view, 3> event_names = {"failure", "close", "close_quietly"};
    static constexpr State initial = State::open;
    static constexpr auto transitions =
        std::to_array<Transition<State, Event>>({{State::open, Event::failure, State::failed},
                                                 {State::open, Event::close, State::closing},
                                                 {State::open, Event::close_quietly, State::closing_quietly},
                                                 {State::failed, Event::failure, State::failed},
                                                 {State::failed, Event::close, State::closing},
                                                 {State::failed, Event::close_quietly, State::closing}});
};

}  // namespace dlcp

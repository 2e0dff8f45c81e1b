// State machines as tables: named states, named events, and one list of the transitions between them.
//
// A machine is a description, a struct of constants in a header of its own:
//
//   struct DoorStates {
//       enum class State : std::uint8_t { open, closed };
//       enum class Event : std::uint8_t { push, pull };
//       static constexpr std::string_view name = "door";
//       static constexpr std::array<std::string_view, 2> state_names = {"open", "closed"};  // by State
//       static constexpr std::array<std::string_view, 2> event_names = {"push", "pull"};    // by Event
//       static constexpr State initial = State::open;
//       static constexpr auto transitions = std::to_array<Transition<State, Event>>(
//           {{State::open, Event::push, State::closed}, {State::closed, Event::pull, State::open}});
//   };
//   using Door = StateMachine<DoorStates>;
//
// The owner calls apply(event) where it decides that the event has happened; nothing else changes the state. An event
// that the table does not list for the current state is a defect of the caller: apply() asserts. A table that lists one
// (state, event) twice, or has a state that cannot be reached from the initial one, does not compile. The table has no
// actions: the owner acts on events itself.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dlcp {

template <class StateT, class EventT>
struct Transition {
    StateT from;
    EventT event;
    StateT to;
};

template <class Machine>
class StateMachine {
public:
    using State = typename Machine::State;
    using Event = typename Machine::Event;
    static constexpr std::size_t states = Machine::state_names.size();
    static constexpr std::size_t events = Machine::event_names.size();

    // The state that `event` leads to from `from`; none if the table has no such transition.
    static constexpr std::optional<State> next(State from, Event event) {
        const std::uint8_t to = by_state_and_event[index(from)][index(event)];
        return to == no_state ? std::nullopt : std::optional<State>(static_cast<State>(to));
    }
    static constexpr std::string_view name(State state) { return Machine::state_names[index(state)]; }
    static constexpr std::string_view name(Event event) { return Machine::event_names[index(event)]; }

    constexpr State state() const { return state_; }
    constexpr bool operator==(State state) const { return state_ == state; }
    constexpr bool may(Event event) const { return next(state_, event).has_value(); }
    constexpr void apply(Event event) {
        const std::optional<State> to = next(state_, event);
        assert(to && "the event has no transition from this state");
        if (to) state_ = *to;
    }

private:
    static constexpr std::uint8_t no_state = UINT8_MAX;
    template <class Enum>
    static constexpr std::size_t index(Enum value) {
        return static_cast<std::size_t>(value);
    }

    using Lookup = std::array<std::array<std::uint8_t, events>, states>;
    static constexpr Lookup lookup() {
        Lookup table{};
        for (auto& row : table) row.fill(no_state);
        for (const auto& each : Machine::transitions)
            table[index(each.from)][index(each.event)] = static_cast<std::uint8_t>(each.to);
        return table;
    }
    static constexpr Lookup by_state_and_event = lookup();

    static constexpr bool one_target_each() {
        std::size_t filled = 0;
        for (const auto& row : by_state_and_event)
            for (const std::uint8_t to : row) filled += to != no_state;
        return filled == Machine::transitions.size();
    }
    static constexpr bool all_reachable() {
        std::array<bool, states> reached{};
        reached[index(Machine::initial)] = true;
        for (std::size_t round = 0; round < states; ++round)
            for (const auto& each : Machine::transitions)
                if (reached[index(each.from)]) reached[index(each.to)] = true;
        for (const bool each : reached)
            if (!each) return false;
        return true;
    }
    static_assert(one_target_each(), "the table names one (state, event) twice");
    static_assert(all_reachable(), "a state cannot be reached from the initial one");

    State state_ = Machine::initial;
};

// One line per transition, in the table's order: "machine from event to". Drawings are generated from these.
template <class Machine>
std::string transition_lines() {
    using Table = StateMachine<Machine>;
    std::string lines;
    for (const auto& each : Machine::transitions) {
        lines.append(Machine::name).append(" ").append(Table::name(each.from)).append(" ");
        lines.append(Table::name(each.event)).append(" ").append(Table::name(each.to)).append("\n");
    }
    return lines;
}

}  // namespace dlcp

// State machines as tables, on a door.
#include <doctest/doctest.h>

#include "engine/state_machine.hpp"
#include "support/native/state_walk.hpp"

namespace dlcp {
namespace {

struct DoorStates {
    enum class State : std::uint8_t { open, closed, locked };
    enum class Event : std::uint8_t { push, pull, turn_key };
    static constexpr std::string_view name = "door";
    static constexpr std::array<std::string_view, 3> state_names = {"open", "closed", "locked"};
    static constexpr std::array<std::string_view, 3> event_names = {"push", "pull", "turn_key"};
    static constexpr State initial = State::open;
    static constexpr auto transitions =
        std::to_array<Transition<State, Event>>({{State::open, Event::push, State::closed},
                                                 {State::closed, Event::pull, State::open},
                                                 {State::closed, Event::turn_key, State::locked},
                                                 {State::locked, Event::turn_key, State::closed}});
};
using Door = StateMachine<DoorStates>;

TEST_CASE("state machine: an event leads where the table says") {
    Door door;
    CHECK(door == Door::State::open);
    door.apply(Door::Event::push);
    CHECK(door == Door::State::closed);
    door.apply(Door::Event::turn_key);
    CHECK(door == Door::State::locked);
}

TEST_CASE("state machine: an event that the table does not name is refused") {
    Door door;
    CHECK(!door.may(Door::Event::turn_key));
    CHECK(Door::next(Door::State::locked, Door::Event::pull) == std::nullopt);
    CHECK(door.may(Door::Event::push));
}

TEST_CASE("state machine: a walk takes every transition") { test::walk<DoorStates>(); }

TEST_CASE("state machine: the table is written a line per transition") {
    CHECK(transition_lines<DoorStates>() ==
          "door open push closed\n"
          "door closed pull open\n"
          "door closed turn_key locked\n"
          "door locked turn_key closed\n");
}

}  // namespace
}  // namespace dlcp

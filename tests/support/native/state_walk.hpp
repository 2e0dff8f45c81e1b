// A walk over a state machine: from the initial state along the table to each transition, each taken once at least, and
// in every state every event that the table does not name is refused.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "engine/state_machine.hpp"

namespace dlcp::test {

// The events that lead from the initial state to `target`, fewest first found.
template <class Machine>
std::vector<typename Machine::Event> events_to(typename Machine::State target) {
    using Table = StateMachine<Machine>;
    std::array<std::vector<typename Machine::Event>, Table::states> route;
    std::array<bool, Table::states> found{};
    const auto at = [](typename Machine::State state) { return static_cast<std::size_t>(state); };
    found[at(Machine::initial)] = true;
    while (!found[at(target)]) {
        for (const auto& each : Machine::transitions) {
            if (!found[at(each.from)] || found[at(each.to)]) continue;
            found[at(each.to)] = true;
            route[at(each.to)] = route[at(each.from)];
            route[at(each.to)].push_back(each.event);
        }
    }
    return route[at(target)];
}

template <class Machine>
void walk() {
    using Table = StateMachine<Machine>;
    std::size_t taken = 0;
    for (std::size_t s = 0; s < Table::states; ++s) {
        const auto from = static_cast<typename Machine::State>(s);
        for (std::size_t e = 0; e < Table::events; ++e) {
            const auto event = static_cast<typename Machine::Event>(e);
            CAPTURE(Table::name(from));
            CAPTURE(Table::name(event));
            Table machine;
            for (const auto step : events_to<Machine>(from)) machine.apply(step);
            REQUIRE(machine == from);
            const auto named = Table::next(from, event);
            REQUIRE(machine.may(event) == named.has_value());
            if (!named) continue;
            machine.apply(event);
            CHECK(machine == *named);
            ++taken;
        }
    }
    CHECK(taken == Machine::transitions.size());
}

}  // namespace dlcp::test

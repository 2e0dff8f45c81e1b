// The states of operations and groups: every transition, every refusal, and the paths that a failure takes.
#include "collective/states.hpp"

#include <doctest/doctest.h>

#include "support/native/state_walk.hpp"

namespace dlcp {
namespace {

TEST_CASE("operation states: a walk takes every transition and finds every other event refused") {
    test::walk<OperationStates>();
}

TEST_CASE("inquiry states: a walk takes every transition and finds every other event refused") {
    test::walk<InquiryStates>();
}

TEST_CASE("absence states: a walk takes every transition and finds every other event refused") {
    test::walk<AbsenceStates>();
}

TEST_CASE("group states: a walk takes every transition and finds every other event refused") {
    test::walk<GroupStates>();
}

TEST_CASE("operation states: what failed does not run again, and what is over stays so") {
    using Machine = StateMachine<OperationStates>;
    using State = OperationStates::State;
    for (const auto& each : OperationStates::transitions) {
        CAPTURE(Machine::name(each.event));
        CHECK(each.from != State::over);
        if (each.from == State::failed) CHECK(each.to == State::over);
    }
    CHECK(Machine::next(State::doomed, OperationStates::Event::completion) == std::nullopt);
}

TEST_CASE("group states: a group that has failed notifies its members however it is closed") {
    StateMachine<GroupStates> group;
    group.apply(GroupStates::Event::failure);
    group.apply(GroupStates::Event::close_quietly);
    CHECK(group == GroupStates::State::closing);
}

}  // namespace
}  // namespace dlcp

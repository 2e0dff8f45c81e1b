// The states of operations and groups: every transition, every refusal, and the paths that a failure takes.
#include "collective/states.hpp"

#include <doctest/doctest.h>

#include <string>

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

TEST_CASE("states: each table is written a line per transition, for drawings") {
    const std::string lines = transition_lines<OperationStates>() + transition_lines<InquiryStates>() +
                              transition_lines<AbsenceStates>() + transition_lines<GroupStates>();
    CHECK(lines ==
          "operation running completion over\n"
          "operation running peer_stopped doomed\n"
          "operation running accusation accused\n"
          "operation running failure failed\n"
          "operation doomed peer_stopped doomed\n"
          "operation doomed accusation accused\n"
          "operation doomed failure failed\n"
          "operation accused completion over\n"
          "operation accused failure failed\n"
          "operation failed messages_ended over\n"
          "inquiry quiet question asking_for_others\n"
          "inquiry quiet time_up asking\n"
          "inquiry quiet accusation asking\n"
          "inquiry asking_for_others question asking_for_others\n"
          "inquiry asking_for_others time_up asking\n"
          "inquiry asking_for_others accusation asking\n"
          "inquiry asking accusation asking\n"
          "absence unknown said_not_called not_called\n"
          "absence unknown no_answer silent\n"
          "absence not_called no_answer silent\n"
          "group open failure failed\n"
          "group open close closing\n"
          "group open close_quietly closing_quietly\n"
          "group failed close closing\n"
          "group failed close_quietly closing\n");
}

}  // namespace
}  // namespace dlcp

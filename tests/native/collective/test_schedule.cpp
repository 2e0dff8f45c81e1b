// A schedule: which step waits for which, and what is refused.
#include "collective/schedule.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

namespace dlcp {
namespace {

using Kind = ScheduleOp::Kind;
constexpr Chunk in0{Space::input, 0}, out0{Space::output, 0}, out1{Space::output, 1}, scratch0{Space::scratch, 0};

ScheduleOp send(std::uint32_t peer, Chunk source, std::uint32_t message = 0) {
    return {.kind = Kind::send, .peer = peer, .message = message, .target = source, .operands = {source}};
}
ScheduleOp receive(std::uint32_t peer, Chunk target, std::vector<Chunk> operands = {}) {
    return {.kind = Kind::receive, .peer = peer, .target = target, .operands = std::move(operands)};
}
ScheduleOp combine(Chunk target, std::vector<Chunk> operands) {
    return {.kind = Kind::combine, .target = target, .operands = std::move(operands)};
}

// Rank 0 of 3 with one input, two outputs and one scratch chunk like the input.
Schedule schedule(std::vector<ScheduleOp> ops) { return {3, 0, 1, 2, {in0}, std::move(ops)}; }

std::string refusal(std::vector<ScheduleOp> ops) {
    try {
        schedule(std::move(ops));
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("schedule: a step waits for the latest earlier one that wrote what it reads") {
    const Schedule made = schedule({receive(1, scratch0), combine(out0, {in0, scratch0}), send(2, out0)});
    const auto& steps = made.steps();
    CHECK(steps[1].operands[0].producer == Schedule::none);
    CHECK(steps[1].operands[1].producer == 0);
    CHECK(steps[2].operands[0].producer == 1);
    CHECK(steps[0].consumers == std::vector<std::uint32_t>{1});
    CHECK(steps[1].consumers == std::vector<std::uint32_t>{2});
    CHECK(steps[2].consumers.empty());
}

TEST_CASE("schedule: a chunk that is read before it is written was there at the start") {
    const Schedule made = schedule({send(1, out0), receive(2, out0, {out0})});
    CHECK(made.steps()[0].operands[0].producer == Schedule::none);
    CHECK(made.steps()[1].operands[0].producer == Schedule::none);
}

TEST_CASE("schedule: a consumer that reads a chunk twice waits once") {
    const Schedule made = schedule({receive(1, out0), combine(out1, {out0, out0})});
    CHECK(made.steps()[0].consumers == std::vector<std::uint32_t>{1});
}

TEST_CASE("schedule: peers are named once, in order") {
    const Schedule made = schedule({send(2, in0), receive(1, out0), send(2, in0, 1)});
    CHECK(made.peers() == std::vector<std::uint32_t>{1, 2});
}

TEST_CASE("schedule: what cannot run is refused with the operation's number") {
    CHECK(refusal({send(0, in0)}).find("operation 0: peer is 0") == 0);
    CHECK(refusal({send(3, in0)}).find("operation 0: peer is 3") == 0);
    CHECK(refusal({send(1, in0), send(1, in0, Schedule::max_messages)}).find("operation 1: message is") == 0);
    CHECK(refusal({receive(1, in0)}).find("operation 0: writes to the input") == 0);
    CHECK(refusal({receive(1, {Space::output, 2})}).find("operation 0: chunk 2") == 0);
    CHECK(refusal({combine(out0, {})}).find("operation 0: has 0 operands") == 0);
    ScheduleOp lossy = combine(out0, {in0});
    lossy.lossy = true;
    CHECK(refusal({lossy}).find("operation 0: is lossy") == 0);
    ScheduleOp late = receive(2, out1, {out0});
    late.lossy = true;
    CHECK(refusal({receive(1, out0), late}).find("operation 1: is a lossy receive") == 0);
}

TEST_CASE("schedule: a rank, and what scratch is like, must exist") {
    CHECK_THROWS_AS(Schedule(2, 2, 0, 0, {}, {}), std::invalid_argument);
    CHECK_THROWS_AS(Schedule(2, 0, 1, 0, {{Space::input, 1}}, {}), std::invalid_argument);
    CHECK_THROWS_AS(Schedule(2, 0, 1, 0, {{Space::scratch, 0}}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace dlcp

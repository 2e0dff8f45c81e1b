// How operations and groups fail, and what they leave behind.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/native/collective_ranks.hpp"

using namespace dlcp;
using namespace dlcp::test;

TEST_CASE("failure: a rank that is killed fails the collective on all others, which blame it") {
    for (const char* name : {"all_reduce ring 6", "all_reduce direct 6", "all_reduce tree 6", "all_gather ring 6",
                             "all_reduce halving_doubling 6"}) {
        for (const std::uint32_t culprit : {0u, 3u}) {
            for (const Duration timeout : {limit, seconds(60)}) {  // its own time, or the peer timeout of 2 s
                CAPTURE(std::string(name));
                CAPTURE(culprit);
                Ranks ranks(6);
                LinkSettings port;
                port.rate = Rate{1'000'000'000};
                ranks.set_ports(port);
                ranks.world.errors_allowed = true;
                ranks.start(ranks.plan(name, 60'000, DataType::f32, ReduceOp::sum, timeout));
                ranks.wait(microseconds(900));
                ranks.world.stop(culprit);
                ranks.run();
                ranks.check_blamed(culprit, std::min(timeout, seconds(2)));
                ranks.finish();
            }
        }
    }
}

TEST_CASE("failure: a rank that is stopped for 14 s and goes on is missed by nobody") {
    // A debugger, Ctrl-Z, a virtual machine that moves: the default peer timeout is longer.
    Ranks ranks(
        3, [](std::uint32_t, EndpointConfig& config) { config.peer_timeout = EndpointConfig{}.peer_timeout; });
    ranks.start(ranks.plan("all_reduce ring 3", 60'000, DataType::f32, ReduceOp::sum, seconds(60)));
    ranks.wait(microseconds(100));
    ranks.world.freeze(1);
    ranks.wait(seconds(14));
    ranks.world.thaw(1);
    ranks.run();
    for (const std::uint32_t rank : {0u, 1u, 2u}) CHECK(ranks.result(0, rank).error == CollectiveError::none);
    ranks.finish();
}

TEST_CASE("failure: a rank that leaves too early is to blame") {
    Ranks ranks(4);
    LinkSettings port;
    port.rate = Rate{1'000'000'000};
    ranks.set_ports(port);
    ranks.world.errors_allowed = true;
    ranks.start(ranks.plan("all_reduce ring 4", 250'000, DataType::f32, ReduceOp::sum, seconds(60)));
    ranks.wait(milliseconds(4));
    ranks.world.close(1);
    ranks.run();
    ranks.check_blamed(1, Duration{0});
    ranks.finish();
}

TEST_CASE("failure: a message that nobody sends times out alone") {
    Ranks ranks(2);
    ranks.world.errors_allowed = true;
    MessagePlan plan;
    plan.from = 1;
    plan.to = 0;
    plan.bytes = 100;
    plan.timeout = limit;
    for (const bool from_anyone : {false, true}) {
        plan.tag = from_anyone;
        plan.from_anyone = from_anyone;
        const std::size_t message = ranks.world.add(plan);
        ranks.world.start_message(message, false);
        ranks.start(ranks.plan("all_reduce ring 2", 10));
        ranks.run();
        const CollectiveResult& result = ranks.result(message, 0, Operation::Kind::receive);
        CHECK(result.error == CollectiveError::timeout);
        CHECK(result.culprit == (from_anyone ? UINT32_MAX : 1));
        CHECK(result.waited <= limit + seconds(1));
    }
    ranks.start(ranks.plan("all_reduce ring 2", 10));
    ranks.run();
    CHECK(ranks.world.operations().back().result.error == CollectiveError::none);
    ranks.finish();
}

TEST_CASE("failure: a group that has failed refuses what starts later, and others go on") {
    Ranks ranks(4);
    ranks.world.errors_allowed = true;
    const std::uint32_t other = ranks.world.add_group(77, {3, 0, 2, 1});
    const std::size_t plan = ranks.plan("all_reduce ring 4", 100, DataType::f32, ReduceOp::sum, limit);
    ranks.start(plan, {2});
    ranks.run();
    ranks.wait(milliseconds(1));  // rank 2 has heard of it too
    const std::size_t later = ranks.plan("all_reduce direct 4", 100);
    ranks.start(later);
    CollectivePlan elsewhere = ranks.world.collectives()[ranks.plan("all_reduce ring 4", 1000)];
    elsewhere.group = other;
    const std::size_t healthy = ranks.world.add(elsewhere);
    ranks.start(healthy);
    ranks.run();
    for (std::uint32_t member = 0; member < 4; ++member) {
        const CollectiveResult& result = ranks.result(later, member);
        CHECK(result.error == CollectiveError::group_failed);
        CHECK(result.cause == CollectiveError::timeout);
        CHECK(result.culprit == 2);
        CHECK(result.sequence == ranks.world.collectives()[plan].sequence);
        CHECK(result.waited == Duration{0});
        CHECK(ranks.result(healthy, member).error == CollectiveError::none);
    }
    ranks.finish();
}

TEST_CASE("failure: a failed group leaves nothing in the engines, and its number can be used again") {
    Ranks ranks(5);
    ranks.world.errors_allowed = true;
    for (int round = 0; round < 3; ++round) {
        CAPTURE(round);
        const std::size_t first = ranks.world.operations().size();
        // Long and short messages, some for collectives that the others do not reach.
        ranks.sequence = 1;
        std::vector<std::size_t> plans;
        for (const std::uint32_t elements : {10u, 5000u, 30'000u})
            plans.push_back(ranks.plan("all_reduce direct 5", elements, DataType::f32, ReduceOp::sum, limit));
        for (const std::size_t plan : plans) ranks.world.start_collective(plan, 0);
        for (std::uint32_t member = 1; member < 4; ++member) ranks.world.start_collective(plans[0], member);
        ranks.wait(milliseconds(20));
        ranks.world.open_group(0, 4);
        ranks.world.close_group(0, 3, true);
        ranks.run();
        ranks.check_blamed(3, limit, first);
        ranks.wait(milliseconds(100));
        for (std::uint32_t host = 0; host < 5; ++host) {
            CHECK(ranks.world.endpoint(host).kept_messages().outgoing == 0);
            CHECK(ranks.world.endpoint(host).kept_messages().unexpected == Bytes{0});
        }
        for (std::uint32_t member = 0; member < 5; ++member) ranks.world.close_group(0, member, false);
        ranks.wait(milliseconds(100));
        for (std::uint32_t host = 0; host < 5; ++host) {
            const KeptMessages kept = ranks.world.endpoint(host).kept_messages();
            CHECK(kept.outgoing == 0);
            CHECK(kept.incoming == 0);
            CHECK(kept.unexpected == Bytes{0});
            CHECK(!ranks.world.executor(host).draining());
        }
        // The same number, the same sequence, the same signature: nothing of the old one is found.
        ranks.sequence = 1;
        const std::size_t fresh = ranks.plan("all_reduce direct 5", 10);
        ranks.start(fresh);
        ranks.run();
        for (std::uint32_t member = 0; member < 5; ++member)
            CHECK(ranks.result(fresh, member).error == CollectiveError::none);
        for (std::uint32_t member = 0; member < 5; ++member) ranks.world.close_group(0, member, false);
        ranks.wait(milliseconds(100));
        if (round == 0) ranks.finish();
    }
}

TEST_CASE("failure: a failed group's copies do not wait for a rank that has no room for them") {
    Ranks ranks(2, [](std::uint32_t rank, EndpointConfig& config) {
        if (rank == 1) config.max_unexpected_message = Bytes{1000};
    });
    ranks.world.errors_allowed = true;
    const std::size_t plan = ranks.plan("all_reduce one_shot 2", 1000, DataType::f32, ReduceOp::sum, limit);
    ranks.start(plan, {1});
    ranks.run();
    CHECK(ranks.result(plan, 0).culprit == 1);
    ranks.wait(milliseconds(100));
    CHECK(ranks.world.endpoint(0).kept_messages().outgoing == 0);
    CHECK(!ranks.world.executor(0).draining());
    // The other one hears of the failure when it calls.
    ranks.world.start_collective(plan, 1);
    ranks.run(milliseconds(10));
    CHECK(ranks.result(plan, 1).error == CollectiveError::group_failed);
    CHECK(ranks.result(plan, 1).culprit == 1);
    ranks.finish();
}

TEST_CASE(
    "failure: a rank that left while nothing was under way is missed at once, and what it sent is received") {
    Ranks ranks(3);
    ranks.world.errors_allowed = true;
    const auto message = [&](std::uint32_t from, std::uint32_t to, std::uint32_t tag, bool from_anyone = false) {
        MessagePlan plan;
        plan.from = from;
        plan.to = to;
        plan.tag = tag;
        plan.bytes = 100;
        plan.from_anyone = from_anyone;
        return ranks.world.add(plan);
    };
    const std::size_t before = message(1, 0, 1), never = message(1, 0, 2), back = message(0, 1, 3);
    const std::size_t anyone = message(2, 0, 4, true), nobody = message(1, 0, 5, true);
    ranks.start(ranks.plan("all_reduce direct 3", 10));
    ranks.run();
    ranks.world.start_message(before, true);
    ranks.wait(milliseconds(10));
    ranks.world.close(1);
    ranks.wait(seconds(3));
    const Time then = ranks.world.now();
    ranks.world.start_message(before, false);
    ranks.world.start_message(never, false);
    ranks.world.start_message(back, true);
    ranks.world.start_message(anyone, false);
    ranks.world.start_message(nobody, false);
    ranks.world.start_message(anyone, true);
    ranks.wait(milliseconds(10));
    CHECK(ranks.result(before, 0, Operation::Kind::receive).error == CollectiveError::none);
    CHECK(ranks.result(anyone, 0, Operation::Kind::receive).error == CollectiveError::none);
    for (const auto& [index, kind] :
         {std::pair{never, Operation::Kind::receive}, std::pair{back, Operation::Kind::send}}) {
        const CollectiveResult& result = ranks.result(index, 0, kind);
        CHECK(result.error == CollectiveError::peer_failed);
        CHECK(result.engine_error == CommandError::peer_closed);
        CHECK(result.culprit == 1);
    }
    // The last of the others leaves: nobody can send to a receive from anyone.
    ranks.world.close(2);
    ranks.wait(milliseconds(10));
    CHECK(ranks.result(nobody, 0, Operation::Kind::receive).culprit == 2);
    const std::size_t plan = ranks.plan("all_reduce direct 3", 10);
    ranks.world.start_collective(plan, 0);
    ranks.run();
    CHECK(ranks.result(plan, 0).error == CollectiveError::peer_failed);
    CHECK(ranks.result(plan, 0).engine_error == CommandError::peer_closed);
    CHECK(ranks.world.now() - then < milliseconds(100));
    ranks.finish();
}

TEST_CASE("failure: what a rank sent before it left completes a collective, and a group opened later misses it") {
    Ranks ranks(2);
    ranks.world.errors_allowed = true;
    ranks.start(ranks.plan("all_reduce direct 2", 10));
    ranks.run();
    const std::size_t sent = ranks.plan("broadcast ring 2 from 1", 10),
                      never = ranks.plan("all_reduce direct 2", 10);
    ranks.world.start_collective(sent, 1);
    ranks.wait(milliseconds(10));
    ranks.world.close(1);
    ranks.wait(seconds(3));
    ranks.world.start_collective(sent, 0);
    ranks.wait(milliseconds(10));
    CHECK(ranks.result(sent, 0).error == CollectiveError::none);
    // A receive from anyone that starts when all have left names one of them.
    MessagePlan message;
    message.from = 1;
    message.to = 0;
    message.bytes = 100;
    message.from_anyone = true;
    const std::size_t nobody = ranks.world.add(message);
    ranks.world.start_message(nobody, false);
    ranks.wait(milliseconds(10));
    CHECK(ranks.result(nobody, 0, Operation::Kind::receive).engine_error == CommandError::peer_closed);
    CHECK(ranks.result(nobody, 0, Operation::Kind::receive).culprit == 1);
    CollectivePlan later = ranks.world.collectives()[never];
    later.group = ranks.world.add_group(9, {0, 1});
    const std::size_t in_later = ranks.world.add(later);
    ranks.world.start_collective(in_later, 0);
    ranks.wait(milliseconds(10));
    CHECK(ranks.result(in_later, 0).engine_error == CommandError::peer_closed);
    ranks.finish();
}

TEST_CASE("failure: a rank that passes blocks on does not write to a copy whose peer has left") {
    // 0 -> 1 -> 2: rank 2 leaves before rank 1 has anything for it. Rank 1's part is to have the data, and it has.
    Ranks ranks(4);
    ranks.world.errors_allowed = true;
    const std::uint32_t three = ranks.world.add_group(6, {0, 1, 2});
    const auto plan_in_three = [&](const char* name, std::uint32_t elements) {
        CollectivePlan plan = ranks.world.collectives()[ranks.plan(name, elements)];
        plan.group = three;
        return ranks.world.add(plan);
    };
    const std::size_t first = plan_in_three("all_reduce ring 3", 10);
    ranks.start(first);
    ranks.run();
    const std::size_t plan = plan_in_three("broadcast ring 3 from 0", 2000);
    ranks.world.start_collective(plan, 1);
    ranks.wait(milliseconds(10));
    ranks.world.close(2);
    ranks.wait(milliseconds(10));
    // The copy's memory is a message's by now, which waits for its peer when the data comes.
    MessagePlan message;
    message.from = 1;
    message.to = 3;
    message.bytes = 2000 * 4;
    const std::size_t copy = ranks.world.add(message);
    ranks.world.freeze(3);
    ranks.world.start_message(copy, true);
    ranks.world.start_collective(plan, 0);
    ranks.wait(milliseconds(10));
    CHECK(ranks.result(plan, 1).error == CollectiveError::none);
    ranks.world.thaw(3);
    ranks.world.start_message(copy, false);
    ranks.run();
    CHECK(ranks.result(copy, 3, Operation::Kind::receive).error == CollectiveError::none);
    ranks.finish();
}

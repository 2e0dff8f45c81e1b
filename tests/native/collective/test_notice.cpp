// How members learn that a rank has closed the group.
#include <doctest/doctest.h>

#include "support/native/collective_ranks.hpp"

using namespace dlcp;
using namespace dlcp::test;

TEST_CASE("notice: every member learns that a rank has closed the group, and which") {
    Ranks ranks(8);
    LinkSettings port;
    port.rate = Rate{1'000'000'000};
    ranks.set_ports(port);
    ranks.world.errors_allowed = true;
    ranks.start(ranks.plan("all_reduce ring 8", 250'000));
    ranks.wait(milliseconds(4));
    const Time aborted = ranks.world.now();
    ranks.world.close_group(0, 5, true);
    ranks.run();
    ranks.check_blamed(5, Duration{0});
    for (const Operation& each : ranks.world.operations()) {
        CHECK(each.over - aborted < milliseconds(20));
        CHECK((each.member == 5 ? each.result.error : each.result.cause) == CollectiveError::aborted);
    }
    ranks.finish();
}

TEST_CASE("notice: a rank that comes later learns of it with its first packet") {
    Ranks ranks(3);
    ranks.world.errors_allowed = true;
    const std::size_t plan = ranks.plan("all_reduce ring 3", 100);
    ranks.world.start_collective(plan, 0);
    ranks.world.close_group(0, 0, true);
    ranks.wait(milliseconds(50));
    const Time late = ranks.world.now();
    ranks.world.start_collective(plan, 1);
    ranks.world.start_collective(plan, 2);
    ranks.run(milliseconds(100));
    ranks.check_blamed(0, Duration{0});
    CHECK(ranks.world.now() - late < milliseconds(100));
}

TEST_CASE("notice: a rank that aborts ends what it has not finished, and nothing before that") {
    for (std::uint32_t aborter = 0; aborter < 3; ++aborter) {
        CAPTURE(aborter);
        Ranks ranks(3);
        LinkSettings slow = unkind();
        slow.delay = milliseconds(20);
        ranks.world.network().set_between((aborter + 1) % 3, (aborter + 2) % 3, slow);
        ranks.world.errors_allowed = true;
        const std::size_t done = ranks.plan("all_reduce ring 3", 1000),
                          next = ranks.plan("all_reduce ring 3", 1000);
        MessagePlan message;
        message.from = aborter;
        message.to = (aborter + 1) % 3;
        message.bytes = 100;
        const std::size_t owed = ranks.world.add(message);
        ranks.world.start_message(owed, false);
        ranks.start(done);
        ranks.world.run(ranks.world.now() + seconds(1), [&] {
            const auto is_over = [&](const Operation& each) {
                return each.kind == Operation::Kind::collective && each.plan == done && each.member == aborter &&
                       each.phase == Operation::Phase::over;
            };
            return std::ranges::any_of(ranks.world.operations(), is_over);
        });
        CHECK_FALSE(ranks.world.all_over());
        ranks.start(next, {aborter});
        ranks.world.start_message(owed, true);
        ranks.world.close_group(0, aborter, true);
        ranks.run(seconds(1));
        for (std::uint32_t member = 0; member < 3; ++member) {
            CHECK(ranks.result(done, member).error == CollectiveError::none);
            if (member == aborter) continue;
            CHECK(ranks.result(next, member).cause == CollectiveError::aborted);
            CHECK(ranks.result(next, member).culprit == aborter);
        }
        CHECK(ranks.result(owed, message.to, Operation::Kind::receive).error == CollectiveError::none);
        ranks.finish();
    }
}

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

// Which rank is to blame when time is up.
#include <doctest/doctest.h>

#include <string>

#include "support/native/collective_ranks.hpp"

using namespace dlcp;
using namespace dlcp::test;

TEST_CASE("inquiry: a rank that is killed before any session is to blame") {
    for (const char* name :
         {"all_reduce ring 5", "all_reduce tree 5", "broadcast ring 5 from 0", "all_reduce direct 5"}) {
        CAPTURE(std::string(name));
        Ranks ranks(5);
        ranks.world.errors_allowed = true;
        ranks.world.stop(4);
        ranks.start(ranks.plan(name, 1000, DataType::f32, ReduceOp::sum, limit), {4});
        ranks.run();
        for (const Operation& each : ranks.world.operations()) {
            CAPTURE(ranks.world.describe(each));
            // Who only had to send has sent.
            if (each.result.error != CollectiveError::none) CHECK(each.result.culprit == 4);
            CHECK(each.over - each.started <= limit + seconds(1));
        }
        CHECK(ranks.result(0, 3).error != CollectiveError::none);
    }
}

TEST_CASE("inquiry: a rank that is stopped and goes on in time fails nobody") {
    Ranks ranks(4);
    ranks.start(ranks.plan("all_reduce ring 4", 100'000, DataType::f32, ReduceOp::sum, limit));
    ranks.wait(microseconds(300));
    ranks.world.freeze(2);
    ranks.wait(milliseconds(800));
    ranks.world.thaw(2);
    ranks.run();
    ranks.finish();
}

TEST_CASE("inquiry: a rank that an operation keeps from the next is not to blame for it") {
    // Ranks 1 and 3 wait in operation 1 for rank 0, which is gone; rank 2 has finished that and waits for them in the
    // next. Whoever's time is up first, and whether anybody else's is near: it is rank 0.
    for (const bool first_has_time : {true, false}) {
        CAPTURE(first_has_time);
        Ranks ranks(4);
        ranks.world.errors_allowed = true;
        ranks.start(ranks.plan("all_reduce ring 4", 10));
        ranks.run();
        const std::size_t first = ranks.world.operations().size();
        const Duration long_time = seconds(1000);
        const std::size_t kept = ranks.plan("all_reduce ring 4", 3000, DataType::f32, ReduceOp::sum,
                                            first_has_time ? long_time : limit);
        const std::size_t next = ranks.plan("all_reduce ring 4", 3000, DataType::f32, ReduceOp::sum, limit);
        for (const std::uint32_t member : {1u, 3u}) ranks.world.start_collective(kept, member);
        ranks.world.start_collective(next, 2);
        ranks.world.stop(0);
        ranks.run();
        ranks.check_blamed(0, limit, first);
        for (const std::uint32_t member : {1u, 3u}) {
            const CollectiveResult& result = ranks.result(kept, member);
            CHECK(result.engine_error == CommandError::peer_timeout);
        }
        CHECK(ranks.result(next, 2).engine_error == CommandError::peer_timeout);
        ranks.finish();
    }
}

TEST_CASE("inquiry: a rank that does not call is to blame, however long the chain and whoever is first") {
    for (const char* name : {"all_reduce ring 8", "broadcast ring 8 from 0", "reduce ring 8 from 7",
                             "all_reduce tree 8", "all_reduce halving_doubling 8"}) {
        for (const std::uint32_t absent : {0u, 2u, 5u}) {
            CAPTURE(std::string(name));
            CAPTURE(absent);
            Ranks ranks(8);
            ranks.world.errors_allowed = true;
            ranks.start(ranks.plan("all_reduce ring 8", 10));
            ranks.run();
            const std::size_t plan = ranks.plan(name, 3000, DataType::f32, ReduceOp::sum, limit);
            for (std::uint32_t i = 0; i < 8; ++i) {  // those that are farthest start first
                const std::uint32_t member = (absent + 8 - i) % 8;
                if (member != absent) ranks.world.start_collective(plan, member);
                ranks.wait(milliseconds(30));
            }
            ranks.run();
            bool failed = false;
            for (const Operation& each : ranks.world.operations()) {
                if (each.plan != plan || each.result.error == CollectiveError::none) continue;
                CAPTURE(ranks.world.describe(each));
                failed = true;
                CHECK(each.result.culprit == absent);
                CHECK((each.result.error == CollectiveError::timeout ||
                       each.result.cause == CollectiveError::timeout));
                CHECK(each.over - each.started <= limit + seconds(1));
            }
            CHECK(failed);
            ranks.finish();
        }
    }
}

TEST_CASE("inquiry: the first rank whose time is up learns through all others which one is to blame") {
    for (const bool killed : {false, true}) {
        CAPTURE(killed);
        Ranks ranks(8);
        ranks.world.errors_allowed = true;
        ranks.start(ranks.plan("all_reduce ring 8", 10));
        ranks.run();
        const std::size_t plan =
            ranks.plan("all_reduce ring 8", 3000, DataType::f32, ReduceOp::sum, seconds(1000));
        // Rank 7 waits for 6, which waits for 5, and so on; nobody else's time is near.
        for (std::uint32_t member = 1; member < 7; ++member) ranks.world.start_collective(plan, member);
        ranks.world.start_collective(plan, 7, {.timeout = milliseconds(300)});
        if (killed) ranks.world.stop(0);
        ranks.run();
        ranks.check_blamed(0, milliseconds(300), 8);
        CHECK(ranks.result(plan, 7).error == CollectiveError::timeout);
        CHECK(ranks.result(plan, 1).cause == CollectiveError::timeout);
        ranks.finish();
    }
}

// Ranks that called something else, or with other sizes.
#include <doctest/doctest.h>

#include "support/native/collective_ranks.hpp"

using namespace dlcp;
using namespace dlcp::test;

TEST_CASE("mismatch: a message of another length is a mismatch that names both") {
    for (const std::uint32_t bytes : {100u, 600'000u}) {
        CAPTURE(bytes);
        Ranks ranks(2);
        ranks.world.errors_allowed = true;
        MessagePlan plan;
        plan.from = 1;
        plan.to = 0;
        plan.bytes = bytes;
        plan.more_bytes = 3;
        const std::size_t message = ranks.world.add(plan);
        ranks.world.start_message(message, false);
        ranks.world.start_message(message, true);
        ranks.run();
        const CollectiveResult& result = ranks.result(message, 0, Operation::Kind::receive);
        CHECK(result.error == CollectiveError::mismatch);
        CHECK(result.culprit == 1);
        CHECK(result.foreign_bytes == bytes);
        CHECK(result.expected_bytes == bytes + 3);
        // What left from a copy was over before.
        CHECK(ranks.result(message, 1, Operation::Kind::send).error ==
              (bytes == 100 ? CollectiveError::none : CollectiveError::mismatch));
        // The group goes on.
        ranks.start(ranks.plan("all_reduce ring 2", 10));
        ranks.run();
        CHECK(ranks.world.operations().back().result.error == CollectiveError::none);
        ranks.finish();
    }
}

TEST_CASE("mismatch: a root that called something else before anybody had opened the group is found") {
    Ranks ranks(4);
    ranks.world.errors_allowed = true;
    const std::size_t plan =
        ranks.plan("broadcast ring 4 from 0", 30, DataType::f32, ReduceOp::sum, seconds(1000));
    ranks.world.start_collective(plan, 0, {.signature_bits = 1});
    ranks.wait(milliseconds(20));
    ranks.start(plan, {0});
    ranks.run(milliseconds(100));
    for (std::uint32_t member = 1; member < 4; ++member) {
        const CollectiveResult& result = ranks.result(plan, member);
        CHECK((result.error == CollectiveError::mismatch || result.cause == CollectiveError::mismatch));
        CHECK(result.culprit == 0);
    }
    ranks.finish();
}

TEST_CASE("mismatch: another call is a mismatch on every rank, also when it came before the group was open") {
    for (const bool early : {false, true}) {
        // The high bits of a signature are not in the tag's low 16, and must be seen all the same.
        for (const Deviation deviation :
             {Deviation{.signature_bits = 0x0f0f}, Deviation{.signature_bits = 1u << 16},
              Deviation{.signature_bits = 0xfff0000}, Deviation{.more_elements = 7}}) {
            CAPTURE(early);
            CAPTURE(deviation.more_elements);
            CAPTURE(deviation.signature_bits);
            Ranks ranks(4);
            ranks.world.errors_allowed = true;
            const std::size_t plan = ranks.plan("all_reduce ring 4", 3000, DataType::f32, ReduceOp::sum, limit);
            if (early) {
                ranks.world.start_collective(plan, 2, deviation);
                ranks.wait(milliseconds(20));
            }
            ranks.start(plan, {2});
            if (!early) ranks.world.start_collective(plan, 2, deviation);
            ranks.run(milliseconds(100));  // long before the time is up
            for (std::uint32_t member = 0; member < 4; ++member) {
                const CollectiveResult& result = ranks.result(plan, member);
                CAPTURE(member);
                CHECK((result.error == CollectiveError::mismatch || result.cause == CollectiveError::mismatch));
                // Each side of a mismatch sees the other's call as the foreign one.
                const std::uint32_t reporter =
                    result.error == CollectiveError::mismatch ? member : result.reporter;
                CHECK((result.culprit == 2 || reporter == 2));
                const std::uint32_t other = member == 2 ? 0 : deviation.signature_bits;
                if (result.error == CollectiveError::mismatch && deviation.signature_bits != 0)
                    CHECK(result.foreign_signature ==
                          ((ranks.world.collectives()[plan].signature ^ other) & 0xffff));
            }
            ranks.finish();
        }
    }
}

TEST_CASE("mismatch: another root is found when both have sent and are done, also by high bits alone") {
    Ranks ranks(2);
    ranks.world.errors_allowed = true;
    const std::size_t mine = ranks.plan("broadcast direct 2 from 0", 30, DataType::f32, ReduceOp::sum, limit);
    CollectivePlan other =
        ranks.world
            .collectives()[ranks.plan("broadcast direct 2 from 1", 30, DataType::f32, ReduceOp::sum, limit)];
    other.sequence = ranks.world.collectives()[mine].sequence;
    other.signature = ranks.world.collectives()[mine].signature ^ 1u << 16;
    const std::size_t theirs = ranks.world.add(other);
    ranks.world.start_collective(mine, 0);
    ranks.world.start_collective(theirs, 1);
    ranks.wait(milliseconds(20));
    const std::size_t later = ranks.plan("all_reduce direct 2", 100, DataType::f32, ReduceOp::sum, limit);
    ranks.start(later);
    ranks.run(milliseconds(100));
    for (std::uint32_t member = 0; member < 2; ++member)
        CHECK(ranks.result(later, member).cause == CollectiveError::mismatch);
    ranks.finish();
}

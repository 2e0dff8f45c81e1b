// The order in which a message's blocks leave the first time: critical ones, then droppable ones, and with a deadline or
// patience the most important of these first; and what is not sent at all once patience is over.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "engine/outgoing_message.hpp"
#include "support/native/dice.hpp"

using namespace dlcp;
using dlcp::test::Dice;

namespace {

std::vector<std::uint32_t> first_pass(OutgoingMessage& message) {
    std::vector<std::uint32_t> order;
    while (!message.first_pass_over()) {
        const OutgoingMessage::Next next = message.peek();
        const bool ends = message.deadline == 0 && order.size() + 1 == message.blocks();
        REQUIRE(next.critical == (ends || message.critical(next.block)));
        REQUIRE_FALSE(next.repair);
        message.take(next);
        order.push_back(next.block);
    }
    return order;
}

}  // namespace

TEST_CASE("first pass: each block once, in the order that the delivery asks for") {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        Dice dice(seed);
        OutgoingMessage message;
        message.message_bytes = static_cast<std::uint32_t>(dice.below(200'000));
        message.deadline = static_cast<std::uint16_t>(dice.below(2));
        message.budget = wire::encode_budget(0.5);
        const std::uint16_t block_bytes = 1392;
        std::vector<std::uint8_t> importance(wire::block_count(message.message_bytes, block_bytes));
        for (std::uint8_t& each : importance)
            each = static_cast<std::uint8_t>(dice.below(10) == 0 ? 255 : dice.below(255));
        message.reset(block_bytes, importance);
        if (dice.below(2) == 1) message.recut(1008);
        importance.resize(message.blocks());
        for (std::uint32_t block = 0; block < message.blocks(); ++block)
            importance[block] = message.importance(block);

        std::vector<std::uint32_t> expected(importance.size());
        for (std::uint32_t block = 0; block < expected.size(); ++block) expected[block] = block;
        std::stable_sort(expected.begin(), expected.end(), [&](std::uint32_t a, std::uint32_t b) {
            const bool critical = importance[a] == 255, other = importance[b] == 255;
            if (critical != other) return critical;
            return message.deadline != 0 && importance[a] > importance[b];
        });
        CHECK(first_pass(message) == expected);
    }
}

TEST_CASE("first pass: out of patience, the least important blocks that fit the budget stay unsent") {
    std::uint32_t given_up = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        Dice dice(seed);
        OutgoingMessage message;
        message.message_bytes = static_cast<std::uint32_t>(1 + dice.below(200'000));
        message.patient_until = Time{0};
        message.budget = wire::encode_budget(static_cast<double>(dice.below(90)) / 100);
        std::vector<std::uint8_t> importance(wire::block_count(message.message_bytes, 1392));
        for (std::uint8_t& each : importance)
            each = static_cast<std::uint8_t>(dice.below(10) == 0 ? 255 : dice.below(255));
        message.reset(1392, importance);

        // A block at a time, as patience runs out at some point of the way.
        const std::uint64_t patient_blocks = dice.below(importance.size() + 1);
        std::vector<bool> sent(importance.size());
        std::uint32_t count = 0;
        std::uint8_t least_sent = 255;
        while (!message.first_pass_over()) {
            const OutgoingMessage::Next next = message.peek();
            message.take(next);
            REQUIRE_FALSE(sent[next.block]);
            sent[next.block] = true;
            least_sent = std::min(least_sent, importance[next.block]);
            if (++count > patient_blocks) message.give_up_rest();
        }
        std::uint64_t unsent_bytes = 0;
        for (std::uint32_t block = 0; block < sent.size(); ++block) {
            if (sent[block]) continue;
            ++given_up;
            CHECK(importance[block] != 255);
            CHECK(importance[block] <= least_sent);
            unsent_bytes += message.payload_bytes(block);
        }
        CHECK(unsent_bytes <= message.budget_bytes());
        CHECK_FALSE(message.has_block_to_send());
        // All of it may still be asked for.
        for (std::uint32_t block = 0; block < sent.size(); ++block)
            if (sent[block]) message.on_acked(block);
        CHECK_FALSE(message.has_block_to_send());
    }
    CHECK(given_up > 1000);
}

// The order in which a message's blocks leave the first time: critical ones, then droppable ones, and with a deadline
// the most important of these first.
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
        REQUIRE(next.critical == message.critical(next.block));
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
        const std::uint16_t block_bytes = 1392;
        std::vector<std::uint8_t> importance(wire::block_count(message.message_bytes, block_bytes));
        for (std::uint8_t& each : importance)
            each = static_cast<std::uint8_t>(dice.below(10) == 0 ? 255 : dice.below(255));
        message.reset(block_bytes, importance);
        if (dice.below(2) == 1) {
            message.recut(1008);
            importance.resize(message.blocks());
            for (std::uint32_t block = 0; block < message.blocks(); ++block)
                importance[block] = message.importance(block);
        }

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

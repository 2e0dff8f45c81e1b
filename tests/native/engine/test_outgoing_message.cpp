// OutgoingMessage: which block leaves next, and what is lost. The order of the first pass: test_first_pass.cpp.
#include <doctest/doctest.h>

#include <vector>

#include "engine/outgoing_message.hpp"

namespace dlcp {
namespace {

constexpr std::uint16_t block = 1000;
constexpr std::uint8_t critical = wire::importance_critical;

OutgoingMessage message(std::vector<std::uint8_t> importance, double loss_ratio = 0.0) {
    OutgoingMessage m;
    m.message_bytes = static_cast<std::uint32_t>(importance.size()) * block;
    m.budget = wire::encode_budget(loss_ratio);
    m.reset(block, importance);
    return m;
}

std::uint32_t send_next(OutgoingMessage& m) {
    const OutgoingMessage::Next next = m.peek();
    m.take(next);
    return next.block;
}

std::vector<std::uint32_t> send_all(OutgoingMessage& m) {
    std::vector<std::uint32_t> blocks;
    while (m.has_block_to_send()) blocks.push_back(send_next(m));
    return blocks;
}

using Blocks = std::vector<std::uint32_t>;

TEST_CASE("outgoing message: critical blocks leave first, and the last droppable one leaves as critical") {
    OutgoingMessage m = message({9, critical, 9, critical}, 0.3);
    CHECK(m.critical_blocks() == 3);
    CHECK(send_next(m) == 1);
    CHECK(send_next(m) == 3);
    CHECK_FALSE(m.peek().critical);
    CHECK(send_next(m) == 0);
    CHECK(m.peek().critical);
    CHECK(send_next(m) == 2);
    CHECK(m.first_pass_over());
    CHECK(m.critical(2));
    m.on_lost(0);  // within the budget
    CHECK_FALSE(m.has_block_to_send());
    m.on_lost(2);
    CHECK(send_all(m) == Blocks{2});
}

TEST_CASE("outgoing message: a budget below one block makes all critical, but not under a deadline") {
    OutgoingMessage m = message({9, critical, 9, critical}, 0.2);
    CHECK(m.critical_blocks() == 4);
    CHECK(m.importance(0) == critical);
    OutgoingMessage late;
    late.deadline = 1;
    late.message_bytes = 2 * block;
    late.reset(block, std::vector<std::uint8_t>{9, critical});
    CHECK(late.critical_blocks() == 1);
    CHECK(late.importance(0) == 9);
    CHECK_FALSE((late.take(late.peek()), late.peek().critical));
}

TEST_CASE("outgoing message: a lost critical block leaves before what is left of the first pass") {
    OutgoingMessage m = message({critical, critical, critical});
    CHECK(send_next(m) == 0);
    CHECK(send_next(m) == 1);
    m.on_lost(0);
    CHECK(m.peek().repair);
    CHECK(send_all(m) == Blocks{0, 2});
}

TEST_CASE("outgoing message: lost droppable blocks are repaired, most important first, down to the budget") {
    OutgoingMessage m = message({1, 5, 3, 4, critical, 9}, 0.4);
    send_all(m);
    m.on_acked(4);
    m.on_acked(5);
    for (const std::uint32_t b : {0, 1, 2, 3}) m.on_lost(b);
    CHECK(send_all(m) == Blocks{1, 3});
}

TEST_CASE("outgoing message: a block that is acknowledged is not lost") {
    OutgoingMessage m = message({critical, critical});
    send_all(m);
    m.on_acked(0);
    m.on_lost(0);
    CHECK(!m.has_block_to_send());
    m.on_lost(1);
    m.on_lost(1);
    CHECK(m.bytes_left() == block);
    m.on_acked(1);
    CHECK(!m.has_block_to_send());
}

TEST_CASE("outgoing message: until something of it is acknowledged, its eager bytes leave") {
    OutgoingMessage m = message({critical, critical, critical, critical});
    m.eager_bytes = 2 * block;
    CHECK(send_all(m) == Blocks{0, 1});
    m.on_acked(1);
    CHECK(send_all(m) == Blocks{2, 3});
}

TEST_CASE("outgoing message: gated blocks leave as they are released") {
    OutgoingMessage m;
    m.gated = true;
    m.message_bytes = 4 * block;
    m.reset(block, {});
    CHECK(m.waits_for_release());
    m.release(2, 2);
    m.release(3, 1);  // named again
    CHECK(send_all(m) == Blocks{2, 3});
    CHECK(!m.first_pass_over());
    m.release(0, 2);
    CHECK(send_all(m) == Blocks{0, 1});
    CHECK(!m.waits_for_release());
}

TEST_CASE("outgoing message: cut anew, a block is as important as the most important it overlaps") {
    OutgoingMessage m = message({1, 200, 3, 4}, 0.5);
    m.recut(2 * block);
    CHECK(m.blocks() == 2);
    CHECK(m.importance(0) == 200);
    CHECK(m.importance(1) == 4);
}

TEST_CASE("outgoing message: the last block may be short") {
    OutgoingMessage m;
    m.message_bytes = 2 * block + 1;
    m.reset(block, {});
    CHECK(m.blocks() == 3);
    CHECK(m.payload_bytes(0) == block);
    CHECK(m.payload_bytes(2) == 1);
}

TEST_CASE("outgoing message: what the receiver abandoned adds up over pieces") {
    OutgoingMessage m = message({1, critical, 3}, 0.7);
    m.merge_abandoned(0, 0b100);
    m.merge_abandoned(0, 0b101);
    CHECK(m.abandoned_known() == 2);
    CHECK(m.bytes_of(m.abandoned()) == 2 * block);
    CHECK(!m.abandons_critical());
    m.merge_abandoned(0, 0b010);
    CHECK(m.abandons_critical());
}

}  // namespace
}  // namespace dlcp

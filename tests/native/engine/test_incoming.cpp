// Incoming: receives and messages meet, in whichever order they come, and messages without room wait.
#include <doctest/doctest.h>

#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

ReceiveCommand receive(const Peer& peer, std::uint64_t tag, std::uint32_t capacity_bytes) {
    return {.peer = {peer.index}, .tag = tag, .capacity_bytes = capacity_bytes};
}

TEST_CASE("incoming: a receive before the message, and one after its first block, end with its last block") {
    for (const bool before : {true, false}) {
        CAPTURE(before);
        EngineParts parts;
        Peer& peer = parts.add_established(1);
        const ReceiveCommand command = receive(peer, 7, 2 * peer.block_bytes);
        if (before) CHECK(parts.incoming.post(Time{0}, &peer, command).error == CommandError::none);
        CHECK(parts.arrive(Time{1}, peer, 1, 7, 2, 1));
        CHECK(parts.incoming.unexpected_bytes().value == (before ? 0 : 2u * peer.block_bytes));
        if (!before) CHECK(parts.incoming.claim(Time{1}, &peer, command).has_value());
        CHECK(parts.events().empty());
        CHECK(parts.arrive(Time{2}, peer, 1, 7, 2, 1));  // again: counts once
        CHECK(parts.events().empty());
        CHECK(parts.arrive(Time{2}, peer, 1, 7, 2, 0));
        CHECK(parts.events().at(0).kind == EventKind::receive_finished);
        CHECK(peer.session->owed.complete_ids == std::vector<std::uint32_t>{1});
        CHECK(parts.incoming.unexpected_bytes().value == 0);
        CHECK(parts.incoming.check_invariants().empty());
    }
}

TEST_CASE("incoming: a message without room is held, and proceeds when a receive comes") {
    EndpointConfig config;
    config.max_unexpected = config.max_unexpected_message = Bytes{4096};
    EngineParts parts(config);
    Peer& peer = parts.add_established(1);
    CHECK_FALSE(parts.arrive(Time{0}, peer, 1, 7, 8, 0));
    CHECK(peer.session->owed.hold_ids == std::vector<std::uint32_t>{1});
    CHECK(peer.session->receiver.held == 1);
    CHECK(parts.incoming.post(Time{1}, &peer, receive(peer, 7, 8 * peer.block_bytes)).error == CommandError::none);
    CHECK(peer.session->owed.proceed_ids == std::vector<std::uint32_t>{1});
    CHECK(parts.arrive(Time{2}, peer, 1, 7, 8, 0));
}

TEST_CASE("incoming: a message that is too long for its receive fails it, and its sender is told") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    parts.incoming.post(Time{0}, &peer, receive(peer, 7, 10));
    parts.arrive(Time{1}, peer, 1, 7, 1, 0);
    CHECK(parts.events().at(0).error == CommandError::receive_too_small);
    CHECK(peer.session->owed.refuse_ids == std::vector<std::uint32_t>{1});
}

TEST_CASE("incoming: what the sender's floor passes is over") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    parts.incoming.post(Time{0}, &peer, receive(peer, 7, 2 * peer.block_bytes));
    parts.arrive(Time{1}, peer, 1, 7, 2, 0);
    parts.incoming.advance_floor(Time{2}, peer, 2);
    CHECK(parts.events().at(0).error == CommandError::peer_cancelled);
    CHECK(parts.arrive(Time{3}, peer, 1, 7, 2, 1));
    CHECK(parts.shared.counters.late_blocks == 1);
}

TEST_CASE("incoming: an incomplete message that is discarded is refused, and the room of all is free") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    parts.arrive(Time{0}, peer, 1, 7, 2, 0);  // incomplete
    parts.arrive(Time{0}, peer, 2, 8, 1, 0);  // whole
    parts.arrive(Time{0}, peer, 3, 9, 1, 0);
    CHECK(parts.incoming.discard_unexpected(Time{1}, [](std::uint64_t tag) { return tag != 9; }) == 2);
    CHECK(peer.session->owed.refuse_ids == std::vector<std::uint32_t>{1});
    CHECK(parts.incoming.unexpected_bytes().value == peer.block_bytes);
    CHECK(parts.incoming.check_invariants().empty());
}

}  // namespace
}  // namespace dlcp::test

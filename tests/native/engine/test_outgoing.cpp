// Outgoing: messages of one tag leave one after the other, and what their end frees.
#include <doctest/doctest.h>

#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

bool queued(const EngineParts& parts, std::uint32_t slot) { return parts.shared.outgoing[slot].queue_link.linked; }

TEST_CASE("outgoing: the next message of a tag may leave when the one before is over") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    const std::uint32_t first = parts.send(Time{0}, peer, 7, 1), second = parts.send(Time{0}, peer, 7, 1),
                        other = parts.send(Time{0}, peer, 8, 1);
    CHECK(queued(parts, first));
    CHECK_FALSE(queued(parts, second));
    CHECK(queued(parts, other));
    parts.outgoing.finish(Time{5}, first, CommandError::none);
    CHECK(queued(parts, second));
    const std::vector<Event> events = parts.events();
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == EventKind::send_finished);
    CHECK(events[0].waited == Duration{5});
}

TEST_CASE("outgoing: a waiting message is cancelled out of the middle of its tag") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    const std::uint32_t first = parts.send(Time{0}, peer, 7, 1), middle = parts.send(Time{0}, peer, 7, 1),
                        last = parts.send(Time{0}, peer, 7, 1);
    CHECK(parts.outgoing.cancel(Time{1}, parts.shared.outgoing_id(middle)) == CommandError::none);
    CHECK(parts.outgoing.cancel(Time{1}, parts.shared.outgoing_id(middle)) == CommandError::message_over);
    parts.outgoing.finish(Time{2}, first, CommandError::none);
    CHECK(queued(parts, last));
    parts.outgoing.finish(Time{3}, last, CommandError::none);
    CHECK(queued(parts, parts.send(Time{4}, peer, 7, 1)));  // the tag is free again
}

TEST_CASE("outgoing: a message that has begun is cancelled with its receiver's knowledge") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    const std::uint32_t slot = parts.send(Time{0}, peer, 7, 2);
    parts.leave(Time{0}, peer, slot);
    const MessageId id = parts.shared.outgoing_id(slot);
    CHECK(parts.outgoing.release(id) == CommandError::message_not_over);
    CHECK(parts.outgoing.cancel(Time{1}, id) == CommandError::none);
    CHECK(peer.session->owed.cancel_ids.size() == 1);
    CHECK(parts.events().at(0).error == CommandError::cancelled);
    CHECK(parts.outgoing.release(id) == CommandError::none);
    CHECK(parts.shared.outgoing.in_use(slot));  // until the receiver has answered
    parts.outgoing.finish(Time{2}, slot, CommandError::none);
    CHECK_FALSE(parts.shared.outgoing.in_use(slot));
    CHECK(parts.events().empty());  // it was reported before
}

TEST_CASE("outgoing: ids below the oldest open message are forgotten, and the peer is told after 64") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    const std::uint32_t oldest = parts.send(Time{0}, peer, 0, 1);
    parts.leave(Time{0}, peer, oldest);
    for (std::uint64_t tag = 1; tag <= 64; ++tag) {
        const std::uint32_t slot = parts.send(Time{0}, peer, tag, 1);
        parts.leave(Time{0}, peer, slot);
        parts.outgoing.finish(Time{1}, slot, CommandError::none);
    }
    CHECK(Outgoing::find(peer, 1) == oldest);
    CHECK(Outgoing::find(peer, 2) == UINT32_MAX);
    CHECK_FALSE(peer.session->owed.floor);
    parts.outgoing.finish(Time{1}, oldest, CommandError::none);
    CHECK(peer.session->sender.ids.base() == 66);
    CHECK(peer.session->owed.floor);
}

TEST_CASE("outgoing: what was sent since the goodbye waits for the next session, cut as that needs") {
    EngineParts parts;
    Peer& peer = parts.add_peer(1);
    const std::uint32_t slot = parts.send(Time{0}, peer, 7, 4);
    CHECK_FALSE(queued(parts, slot));
    peer.state.apply(PeerState::Event::prove);
    peer.session.emplace();
    peer.block_bytes /= 2;
    parts.outgoing.start_all(peer);
    CHECK(queued(parts, slot));
    CHECK(parts.shared.outgoing[slot].block_bytes() == peer.block_bytes);
    parts.outgoing.suspend_all(peer);
    CHECK_FALSE(queued(parts, slot));
    parts.outgoing.start_all(peer);
    CHECK(queued(parts, slot));
}

TEST_CASE("outgoing: commands that a message cannot be made of") {
    EngineParts parts(EngineParts::configured(1));
    Peer& peer = parts.add_established(1);
    const auto error = [&](SendCommand command) { return parts.outgoing.add(Time{0}, peer, command).error; };
    CHECK(error({.traffic_class = wire::control_class}) == CommandError::bad_class);
    CHECK(error({.delivery = Delivery::bounded, .loss_ratio = 1.0}) == CommandError::bad_loss_ratio);
    CHECK(error({.delivery = Delivery::deadline}) == CommandError::bad_deadline);
    CHECK(error({.unit_bytes = 0}) == CommandError::bad_unit);
    const std::array<std::uint8_t, 2> importance{};
    CHECK(error({.message_bytes = 1, .importance = importance}) == CommandError::bad_importance_count);
    CHECK(error({.tag = 1}) == CommandError::none);
    CHECK(error({.tag = 2}) == CommandError::too_many_messages);
}

}  // namespace
}  // namespace dlcp::test

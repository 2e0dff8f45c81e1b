// DataWriter: which packets leave next, and how many.
#include <doctest/doctest.h>

#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

std::vector<std::uint64_t> tags_of(const Slots& slots, std::size_t packets) {
    std::vector<std::uint64_t> tags;
    for (std::size_t i = 0; i < packets; ++i) tags.push_back(slots.packets[i].message_tag);
    return tags;
}

TEST_CASE("data writer: the highest class leaves first, and of a class what has the least left") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    const auto send = [&](std::uint64_t tag, std::uint8_t traffic_class, std::uint32_t blocks) {
        const auto [slot, error] = parts.outgoing.add(Time{0}, peer,
                                                      {.peer = {peer.index},
                                                       .tag = tag,
                                                       .message_bytes = blocks * peer.block_bytes,
                                                       .traffic_class = traffic_class});
        REQUIRE(error == CommandError::none);
        parts.outgoing.enqueue(slot, false);
    };
    send(1, 0, 2);
    send(2, 5, 40);
    send(3, 5, 1);
    Slots slots(64);
    const std::size_t packets = parts.data.poll(Time{0}, slots.all());
    const std::vector<std::uint64_t> tags = tags_of(slots, packets);
    REQUIRE(packets >= 2);
    CHECK(tags.front() == 3);
    CHECK(tags[1] == 2);
    // Not one of the lower class before the last of the higher.
    const auto first_low = std::find(tags.begin(), tags.end(), 1);
    CHECK(std::find(first_low, tags.end(), 2) == tags.end());
    CHECK(peer.session->sender.awaiting == packets);
}

TEST_CASE(
    "data writer: no more is in flight than the peer can buffer, and four packets of a window ask for an answer") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    peer.session->sender.credit = Bytes{16u * peer.datagram_bytes};
    parts.send(Time{0}, peer, 7, 40);
    Slots slots(64);
    const std::size_t packets = parts.data.poll(Time{0}, slots.all());
    CHECK(packets == 16);
    CHECK(parts.data.poll(Time{0}, slots.all()) == 0);
    std::vector<std::size_t> asking;
    for (std::size_t i = 0; i < packets; ++i)
        if ((slots.packets[i].head[wire::flags_offset] & wire::flag::ack_request) != 0) asking.push_back(i);
    CHECK(asking == std::vector<std::size_t>{3, 7, 11, 15});
}

TEST_CASE("data writer: who waits for a turn tells of a new message with one packet") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    peer.session->sender.turn = Bytes{0};
    parts.send(Time{0}, peer, 7, 40);
    Slots slots(64);
    CHECK(parts.data.poll(Time{0}, slots.all()) == 1);
    parts.shared.refresh(peer);
    CHECK(parts.data.poll(Time{0}, slots.all()) == 0);
    peer.session->sender.turn = Bytes{4u * peer.datagram_bytes};
    parts.shared.refresh(peer);
    CHECK(parts.data.poll(Time{0}, slots.all()) == 3);
}

}  // namespace
}  // namespace dlcp::test

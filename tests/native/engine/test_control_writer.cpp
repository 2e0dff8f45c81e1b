// ControlWriter: what is owed leaves once, in as few packets as hold it.
#include <doctest/doctest.h>

#include <numeric>

#include "engine/bytes.hpp"
#include "engine/packet_builder.hpp"
#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

// The ids in frames of this type, of the first so many packets, in their order.
std::vector<std::uint32_t> ids_of(const Slots& slots, std::size_t packets, wire::FrameType type) {
    std::vector<std::uint32_t> found;
    for (std::size_t i = 0; i < packets; ++i) {
        const wire::Datagram datagram = slots.read(i);
        wire::FrameReader reader({datagram.payload, datagram.header.payload_bytes});
        wire::Frame frame;
        while (reader.next(frame)) {
            if (frame.type != type) continue;
            std::uint16_t count = 0;
            REQUIRE(wire::read_count(frame, count));
            for (std::size_t k = 0; k < count; ++k) found.push_back(wire::load32(frame.body.data() + 4 + 4 * k));
        }
    }
    return found;
}

TEST_CASE("control writer: a peer that is owed nothing leaves the queue without a packet") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    parts.shared.queue_control(peer);
    parts.shared.queue_control(peer);
    Slots slots(4);
    CHECK(parts.control.poll(Time{0}, slots.all()) == 0);
    CHECK_FALSE(peer.control_queued);
    CHECK(parts.shared.control_queue.empty());
}

TEST_CASE("control writer: several kinds of frames share a packet, and are owed no more") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    peer.session->owed.complete_ids = {3, 1};
    peer.session->owed.hold_ids = {7};
    peer.session->owed.floor = true;
    parts.shared.queue_control(peer);
    Slots slots(4);
    CHECK(parts.control.poll(Time{0}, slots.all()) == 1);
    CHECK(ids_of(slots, 1, wire::FrameType::complete) == std::vector<std::uint32_t>{3, 1});
    CHECK(ids_of(slots, 1, wire::FrameType::hold) == std::vector<std::uint32_t>{7});
    CHECK_FALSE(peer.session->owed.any());
    CHECK(peer.session->sender.sent.find(0) == peer.session->sender.sent.next());  // nothing asks for an answer
}

TEST_CASE("control writer: what one packet does not hold leaves in the next ones, each id once and in order") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    std::vector<std::uint32_t> ids(1000);
    std::iota(ids.begin(), ids.end(), 1);
    peer.session->owed.proceed_ids = ids;
    parts.shared.queue_control(peer);
    Slots slots(16);
    std::size_t packets = parts.control.poll(Time{0}, slots.all().first(1));
    CHECK(packets == 1);
    CHECK(peer.control_queued);
    packets += parts.control.poll(Time{0}, slots.all().subspan(1));
    CHECK(ids_of(slots, packets, wire::FrameType::proceed) == ids);
    CHECK(packets == (ids.size() * 4 + peer.datagram_bytes - 1) / peer.datagram_bytes);
}

TEST_CASE("control writer: a probe asks for an answer, and the first one travels as the data that it asks about") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    parts.leave(Time{0}, peer, parts.send(Time{0}, peer, 7, 1));
    const std::uint8_t data_tos = type_of_service(parts.shared.config, 0, Ecn::capable);
    const std::uint8_t control_tos = type_of_service(parts.shared.config, wire::control_class, Ecn::capable);
    for (const bool first : {true, false}) {
        parts.recovery.probe_unanswered(Time{0} + seconds(first ? 1 : 3), peer);
        Slots slots(2);
        REQUIRE(parts.control.poll(Time{0} + seconds(3), slots.all()) == 1);
        CHECK(slots.packets[0].tos == (first ? data_tos : control_tos));
        CHECK((slots.read(0).header.flags & wire::flag::ack_request) != 0);
    }
}

TEST_CASE("control writer: a goodbye leaves behind the answers that end messages, and ends the session") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    peer.session->owed.complete_ids.assign(600, 5);  // more than a packet holds
    parts.sessions.disconnect(Time{0}, peer);
    Slots slots(1);
    CHECK(parts.control.poll(Time{0}, slots.all()) == 1);
    CHECK(peer.up());
    CHECK(parts.control.poll(Time{0}, slots.all()) == 1);
    CHECK_FALSE(peer.up());
    CHECK(peer.state == PeerState::State::gone);
}

}  // namespace
}  // namespace dlcp::test

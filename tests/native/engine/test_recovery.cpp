// Recovery: what acknowledgements prove lost, and what becomes of the blocks.
#include <doctest/doctest.h>

#include "engine/bytes.hpp"
#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

// An acknowledgement of these packets of the first 64.
struct Acked {
    std::array<std::uint8_t, 8> bitmap{};
    wire::Ack ack;

    explicit Acked(std::initializer_list<std::uint64_t> numbers) {
        std::uint64_t largest = 0, bits = 0;
        for (const std::uint64_t number : numbers) largest = std::max(largest, number);
        for (const std::uint64_t number : numbers) bits |= std::uint64_t{1} << (largest - number);
        for (std::size_t i = 0; i < bitmap.size(); ++i) bitmap[i] = static_cast<std::uint8_t>(bits >> 8 * (7 - i));
        ack = {.largest = largest, .credit_bytes = 1 << 20, .words = 1, .received = bitmap.data()};
    }
};

struct Sending : EngineParts {
    Peer& peer = add_established(1);
    std::uint32_t slot = 0;

    explicit Sending(std::uint32_t blocks) {
        slot = send(Time{0}, peer, 7, blocks);
        for (std::uint32_t i = 0; i < blocks; ++i) leave(Time{0}, peer, slot);
    }
    SenderState& sender() { return peer.session->sender; }
    void acknowledge(std::initializer_list<std::uint64_t> numbers) {
        const Acked acked(numbers);
        recovery.handle_ack(Time{0} + microseconds(100), peer, acked.ack, 1);
    }
};

TEST_CASE("recovery: packets of a lane that are overtaken by more than its tolerance are lost and leave again") {
    Sending sending(8);
    sending.acknowledge({0, 3});
    CHECK(sending.shared.counters.lost_packets == 0);  // 1 and 2 are within the tolerance of three
    CHECK(sending.sender().awaiting == 6);
    sending.acknowledge({0, 3, 5});
    CHECK(sending.shared.counters.lost_packets == 2);  // 1 and 2
    CHECK(sending.shared.outgoing[sending.slot].peek().block == 1);
    CHECK(sending.shared.outgoing[sending.slot].queue_link.linked);
    CHECK(sending.sender().in_flight == Bytes{3u * sending.peer.datagram_bytes});
}

TEST_CASE("recovery: a packet that was thought lost and arrives makes the lane more patient, once a round") {
    Sending sending(16);
    sending.acknowledge({6});  // 0 to 3 count as lost
    CHECK(sending.shared.counters.lost_packets == 4);
    sending.acknowledge({0, 1, 6});
    CHECK(sending.shared.counters.spurious_losses == 2);
    CHECK(sending.peer.lane_tolerance == 6);
}

TEST_CASE("recovery: an acknowledgement of what was never sent changes nothing") {
    Sending sending(2);
    sending.acknowledge({5});
    CHECK(sending.shared.counters.inconsistent == 1);
    CHECK(sending.sender().awaiting == 2);
}

TEST_CASE("recovery: what the receiver holds is taken back without a loss") {
    Sending sending(4);
    sending.recovery.take_back(sending.peer, sending.slot);
    CHECK(sending.shared.counters.lost_packets == 0);
    CHECK(sending.sender().awaiting == 0);
    CHECK(sending.sender().in_flight == Bytes{0});
    CHECK(sending.shared.outgoing[sending.slot].has_block_to_send());
}

TEST_CASE("recovery: trimmed packets leave again at once") {
    Sending sending(4);
    std::array<std::uint8_t, 16> numbers{};
    numbers[15] = 2;  // 0 and 2
    sending.recovery.handle_trimmed(Time{1}, sending.peer, numbers.data(), 2);
    CHECK(sending.shared.counters.lost_packets == 2);
    CHECK(sending.shared.outgoing[sending.slot].peek().block == 0);
    CHECK(sending.shared.outgoing[sending.slot].queue_link.linked);
}

TEST_CASE("recovery: silence asks with a probe behind the data, then takes all of it for lost") {
    Sending sending(4);
    const Time late = Time{0} + seconds(10);
    sending.recovery.probe_unanswered(late, sending.peer);
    CHECK(sending.peer.session->owed.probe_of_data);
    CHECK(sending.shared.counters.lost_packets == 0);
    sending.recovery.probe_unanswered(late + seconds(10), sending.peer);
    CHECK(sending.peer.session->owed.probe);
    CHECK(sending.shared.counters.lost_packets == 4);
}

TEST_CASE("recovery: room for another packet costs the oldest one") {
    Sending sending(1);
    while (!sending.sender().sent.full()) sending.sender().sent.skip();
    sending.recovery.make_room(sending.peer);
    CHECK_FALSE(sending.sender().sent.full());
    CHECK(sending.shared.counters.lost_packets == 1);
}

}  // namespace
}  // namespace dlcp::test

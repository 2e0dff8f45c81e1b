// UetSent: the sending end's account of packets.
#include "sim/core/transports/uet_sent.hpp"

#include <doctest/doctest.h>

namespace dlcp::sim {
namespace {

void send(UetSent& sent, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t number = sent.take_number();
        sent.sent(0, static_cast<std::uint8_t>(number), number);
    }
}

TEST_CASE("uet sent: new numbers leave in order until all are sent") {
    UetSent sent(3, 8);
    send(sent, 3);
    CHECK(sent.all_new_sent());
    CHECK(sent.nothing_to_send());
    CHECK(sent.in_flight() == 3);
}

TEST_CASE("uet sent: acknowledgements count each packet once") {
    UetSent sent(130, 256);
    send(sent, 130);
    CHECK(sent.acknowledge_bits(60, 0b110001) == 3);  // over the border of two blocks: 60, 64, 65
    CHECK(sent.has(64));
    CHECK_FALSE(sent.has(61));
    CHECK(sent.acknowledge_bits(60, 0b110001) == 0);
    CHECK(sent.acknowledge_below(129) == 126);
    CHECK(sent.in_flight() == 1);
    CHECK_FALSE(sent.complete());
    CHECK(sent.acknowledge_below(130) == 1);
    CHECK(sent.complete());
}

TEST_CASE("uet sent: a packet that is given up leaves again before new ones") {
    UetSent sent(10, 16);
    send(sent, 4);
    CHECK(sent.holds(1, 1));
    CHECK(sent.give_up(1) == 1);  // the entropy it took
    CHECK_FALSE(sent.holds(1, 1));
    CHECK(sent.in_flight() == 3);
    CHECK(sent.take_number() == 1);
    CHECK(sent.take_number() == 4);
}

TEST_CASE("uet sent: a lost packet that has come after all does not leave again") {
    UetSent sent(10, 16);
    send(sent, 4);
    sent.give_up(1);
    CHECK(sent.acknowledge_bits(1, 1) == 1);
    sent.skip_found();
    CHECK_FALSE(sent.any_lost());
    CHECK(sent.in_flight() == 3);
}

TEST_CASE("uet sent: a full ring holds the sender back until its head is settled") {
    UetSent sent(100, 4);
    send(sent, 4);
    CHECK(sent.ring_full());
    sent.acknowledge_bits(1, 1);
    sent.drop_settled();
    CHECK(sent.ring_full());  // 0 is still waited for
    CHECK(sent.awaits(0));
    sent.acknowledge_below(1);
    sent.drop_settled();
    CHECK_FALSE(sent.ring_full());
    CHECK(sent.oldest_place() == 2);
}

}  // namespace
}  // namespace dlcp::sim

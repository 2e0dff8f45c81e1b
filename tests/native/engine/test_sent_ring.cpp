// SentRing: what each packet number carried, until it is resolved.
#include <doctest/doctest.h>

#include "engine/sent_ring.hpp"

namespace dlcp {
namespace {

SentPacket carrying(std::uint32_t block) { return {.block = block}; }

TEST_CASE("sent ring: packets get consecutive numbers") {
    SentRing ring;
    CHECK(ring.push(carrying(10)) == 0);
    CHECK(ring.skip() == 1);
    CHECK(ring.push(carrying(12)) == 2);
    CHECK(ring.next() == 3);
    CHECK(ring[2].block == 12);
}

TEST_CASE("sent ring: only what asked for an acknowledgement is tracked") {
    SentRing ring;
    ring.push(carrying(0));
    ring.skip();
    CHECK(ring.tracked(0));
    CHECK(!ring.tracked(1));
    CHECK(!ring.tracked(2));
    ring.resolve(0);
    CHECK(!ring.tracked(0));
}

TEST_CASE("sent ring: find goes from one tracked number to the next") {
    SentRing ring;
    for (int i = 0; i < 300; ++i) i % 100 == 7 ? ring.push(carrying(0)) : ring.skip();
    CHECK(ring.find(0) == 7);
    CHECK(ring.find(8) == 107);
    CHECK(ring.find(107) == 107);
    CHECK(ring.find(208) == ring.next());
}

TEST_CASE("sent ring: it grows and keeps what is tracked") {
    SentRing ring;
    for (std::uint32_t i = 0; i < 5000; ++i) ring.push(carrying(i));
    for (std::uint32_t i = 0; i < 5000; i += 499) {
        REQUIRE(ring.tracked(i));
        REQUIRE(ring[i].block == i);
    }
}

TEST_CASE("sent ring: it is full a window behind the oldest tracked packet") {
    SentRing ring;
    ring.push(carrying(0));
    while (!ring.full()) ring.skip();
    CHECK(ring.next() == PacketWindow::width);
    ring.resolve(0);
    ring.trim();
    CHECK(ring.oldest() == ring.next());
    CHECK(ring.room() == PacketWindow::width);
}

TEST_CASE("sent ring: a lost packet is watched for a quarter of the window") {
    SentRing ring;
    ring.push(carrying(0));
    ring[0].loss = SentPacket::Loss::overdue;
    for (std::uint64_t i = 1; i < PacketWindow::width / 4; ++i) ring.push(carrying(0));
    ring.trim();
    CHECK(ring.oldest() == 0);
    ring.push(carrying(0));
    ring.trim();
    CHECK(ring.oldest() == 1);
}

}  // namespace
}  // namespace dlcp

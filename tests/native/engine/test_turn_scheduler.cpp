// TurnScheduler: under an incast, who sends, and how much is in flight.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "engine/turn_scheduler.hpp"

namespace dlcp {
namespace {

constexpr Rate line_rate{8'000'000'000};  // a byte a nanosecond
constexpr Bytes datagram{1000};
constexpr Duration rtt = microseconds(20);
constexpr std::uint64_t product = 20'000;  // bytes in a round trip

// A receiver to which data comes, tick by tick.
struct Receiver {
    TurnScheduler turns{true, line_rate, datagram};
    Time now{0};
    std::vector<std::uint32_t> told;

    void open(std::uint32_t peer, std::uint32_t bytes, std::uint8_t traffic_class = 0) {
        turns.opened(peer, {traffic_class, bytes}, bytes, peer, rtt);
    }
    // So many ticks of half a round trip, in which so much of the line is used.
    void run(int ticks, unsigned percent, Duration queued = rtt, unsigned sent_percent = 0) {
        for (int tick = 0; tick < ticks; ++tick) {
            turns.arrived(now, product / 2 * percent / 100, queued);
            turns.sent(product / 2 * sent_percent / 100);
            now = now + rtt / 2;
            told.clear();
            if (turns.due(now)) turns.decide(now, told);
        }
    }
    bool shares() const { return turns.next() != time_never; }
    bool is_told(std::uint32_t peer) const { return std::find(told.begin(), told.end(), peer) != told.end(); }
};

TEST_CASE("turn scheduler: none without an incast") {
    Receiver receiver;
    receiver.open(0, 1'000'000);
    receiver.run(8, 100);
    CHECK_FALSE(receiver.shares());  // one sender
    receiver.open(1, 1'000'000);
    receiver.run(8, 70);
    CHECK_FALSE(receiver.shares());  // the line is not full
    receiver.run(8, 100, rtt / 4);
    CHECK_FALSE(receiver.shares());  // nothing queues
    receiver.run(8, 100, rtt, 100);
    CHECK_FALSE(receiver.shares());  // this host sends as much: likely all do
    receiver.run(2, 100);
    CHECK(receiver.shares());
}

TEST_CASE("turn scheduler: a line rate that nobody has set is learnt before there are turns") {
    Receiver receiver;
    receiver.turns = TurnScheduler(true, Rate{0}, datagram);
    receiver.open(0, 10'000'000);
    receiver.open(1, 10'000'000);
    receiver.run(95, 100);
    CHECK_FALSE(receiver.shares());
    receiver.run(20, 100);
    CHECK(receiver.turns.line_rate() == line_rate);
    CHECK(receiver.shares());
    receiver.run(100, 50);
    CHECK(receiver.turns.line_rate() == line_rate);
    receiver.run(8, 50);
    CHECK_FALSE(receiver.shares());  // a line half as full is not full
}

TEST_CASE("turn scheduler: a learnt rate is the most of ten to twenty seconds, and no burst's") {
    ArrivalRate learnt;
    Time now{0};
    const auto come = [&](Duration length, std::uint64_t bytes_per_ms) {
        for (const Time end = now + length; now < end; now = now + microseconds(100))
            learnt.arrived(now, bytes_per_ms / 10);
    };
    come(milliseconds(900), 500'000);
    CHECK(learnt.rate() == Rate{4'000'000'000});
    // 64 KB at once in every 10 ms.
    for (int burst = 0; burst < 100; ++burst) {
        come(milliseconds(10), 100'000);
        for (int packet = 0; packet < 64; ++packet) learnt.arrived(now = now + nanoseconds(100), 1000);
    }
    CHECK(learnt.rate() == Rate{4'000'000'000});
    come(seconds(21), 100'000);
    CHECK(learnt.rate() == Rate{800'000'000});
    now = now + seconds(60);
    come(milliseconds(20), 250'000);
    CHECK(learnt.rate() == Rate{2'000'000'000});
}

TEST_CASE("turn scheduler: the least left goes first, the others wait, and the next begins before it is done") {
    Receiver receiver;
    receiver.open(0, 900'000);
    receiver.open(1, 300'000);
    receiver.open(2, 600'000);
    receiver.run(3, 100);
    REQUIRE(receiver.turns.turn(1));
    CHECK(*receiver.turns.turn(1) >= Bytes{product});
    CHECK(*receiver.turns.turn(1) <= Bytes{2 * product});
    CHECK(receiver.turns.turn(0) == Bytes{0});
    CHECK(receiver.turns.turn(2) == Bytes{0});

    receiver.turns.placed(1, {0, 300'000}, 295'000);
    receiver.run(1, 100);
    CHECK(*receiver.turns.turn(2) > Bytes{0});
    CHECK(receiver.is_told(2));
    CHECK(receiver.turns.turn(0) == Bytes{0});
    CHECK_FALSE(receiver.is_told(0));

    receiver.turns.placed(1, {0, 300'000}, 5'000);
    receiver.turns.placed(2, {0, 600'000}, 600'000);
    receiver.run(1, 100);
    CHECK_FALSE(receiver.shares());  // who is left is alone, and must hear of it
    CHECK(receiver.is_told(0));
    CHECK_FALSE(receiver.turns.turn(0));
}

TEST_CASE("turn scheduler: a higher class goes before a shorter message") {
    Receiver receiver;
    receiver.open(0, 200'000);
    receiver.open(1, 2'000'000, 3);
    receiver.run(3, 100);
    CHECK(*receiver.turns.turn(1) > Bytes{product});
    CHECK(receiver.turns.turn(0) == Bytes{0});
}

TEST_CASE("turn scheduler: a sender of a part of a whole is free, and hears of it at once") {
    Receiver receiver;
    for (std::uint32_t peer = 0; peer < 4; ++peer) receiver.turns.part_opened(peer);
    for (std::uint32_t peer = 0; peer < 4; ++peer) receiver.open(peer, 1'000'000);
    receiver.run(8, 100);
    CHECK_FALSE(receiver.shares());
    for (std::uint32_t peer = 0; peer < 3; ++peer) receiver.turns.part_ended(peer);
    receiver.run(3, 100);
    REQUIRE(receiver.shares());
    CHECK(receiver.turns.turn(2) == Bytes{0});
    CHECK_FALSE(receiver.turns.turn(3));  // still a part

    receiver.turns.part_opened(2);
    receiver.run(1, 100);
    CHECK(receiver.shares());
    CHECK_FALSE(receiver.turns.turn(2));
    CHECK(receiver.is_told(2));
    receiver.turns.part_opened(2);
    receiver.turns.part_ended(2);
    receiver.run(1, 100);
    CHECK_FALSE(receiver.turns.turn(2));  // of two parts one is left
    receiver.turns.part_ended(2);
    receiver.run(1, 100);
    CHECK(receiver.turns.turn(2) == Bytes{0});
}

TEST_CASE("turn scheduler: a turn ends with the message that it was for") {
    Receiver receiver;
    for (std::uint32_t peer = 0; peer < 4; ++peer) receiver.open(peer, peer == 0 ? 1000 : 1'000'000);
    receiver.run(3, 100);
    REQUIRE(receiver.turns.turn(0) > Bytes{0});
    receiver.turns.placed(0, {0, 1000}, 1000);
    receiver.turns.part_opened(0);
    receiver.run(1, 100);
    REQUIRE(receiver.shares());
    CHECK_FALSE(receiver.turns.turn(0));
    CHECK(receiver.is_told(0));
}

TEST_CASE("turn scheduler: who is to send nothing more waits no more") {
    Receiver receiver;
    for (std::uint32_t peer = 0; peer < 3; ++peer) receiver.open(peer, 1'000'000);
    receiver.run(3, 100);
    REQUIRE(receiver.turns.turn(2) == Bytes{0});
    receiver.turns.placed(2, {0, 1'000'000}, 1'000'000);  // given up
    receiver.run(1, 100);
    CHECK(receiver.shares());
    CHECK_FALSE(receiver.turns.turn(2));
    CHECK(receiver.is_told(2));
    receiver.turns.forget(1);
    receiver.run(1, 100);
    CHECK_FALSE(receiver.shares());  // one is left
}

TEST_CASE("turn scheduler: where turns leave the line idle more get theirs, and at last all are free") {
    Receiver receiver;
    for (std::uint32_t peer = 0; peer < 8; ++peer) receiver.open(peer, 10'000'000);
    receiver.run(3, 100);
    const auto waiting = [&] {
        int count = 0;
        for (std::uint32_t peer = 0; peer < 8; ++peer) count += receiver.turns.turn(peer) == Bytes{0};
        return count;
    };
    const auto first = waiting();
    receiver.run(8, 50);
    CHECK(waiting() < first);
    receiver.run(40, 50);
    CHECK_FALSE(receiver.shares());
    receiver.run(8, 100);
    CHECK_FALSE(receiver.shares());  // for a while
}

TEST_CASE("turn scheduler: on a long path, many senders with little left do not all have a turn") {
    constexpr std::uint32_t senders = 1000;
    constexpr std::uint64_t long_product = 100 * product;
    Receiver receiver;
    for (std::uint32_t peer = 0; peer < senders; ++peer)
        receiver.turns.opened(peer, {0, 20'000}, 20'000, peer, rtt * 100);
    for (int tick = 0; tick < 3; ++tick) {
        receiver.turns.arrived(receiver.now, long_product / 2, rtt * 100);
        receiver.now = receiver.now + rtt * 50;
        if (receiver.turns.due(receiver.now)) receiver.turns.decide(receiver.now, receiver.told);
    }
    REQUIRE(receiver.shares());
    std::uint64_t in_flight = 0;
    for (std::uint32_t peer = 0; peer < senders; ++peer) in_flight += receiver.turns.turn(peer)->value;
    CHECK(in_flight >= long_product * 3 / 2);
    CHECK(in_flight <= long_product * 2);
}

}  // namespace
}  // namespace dlcp

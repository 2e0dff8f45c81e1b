// How long runs become, by what acknowledgements say; and by what switches that spray are known.
#include <doctest/doctest.h>

#include "engine/run_length.hpp"

using namespace dlcp;

namespace {

struct Round {
    bool queue = false;
    bool limited = true;
    bool sprayed = false;
    std::uint32_t packets = 1000;
    std::uint64_t needed = 0;
};

std::uint32_t after(RunLength& length, int rounds, Round round = {}) {
    for (int i = 0; i < rounds; ++i)
        length.on_ack({round.packets, round.queue, round.limited, true, round.sprayed, round.needed});
    return length.packets();
}

}  // namespace

TEST_CASE("run length: begins with its bound, is the least with a queue, and comes back more slowly") {
    RunLength length(1, 44);
    CHECK(length.packets() == 44);
    CHECK(after(length, 1, {.queue = true}) == 1);
    CHECK(after(length, 2) == 1);  // longer ones have brought a queue: it takes twice as many rounds
    CHECK(after(length, 6) == 44);
    // Each time; but never for good.
    for (int i = 0; i < 20; ++i) {
        after(length, 1, {.queue = true});
        after(length, 70);
    }
    CHECK(length.packets() == 44);
}

TEST_CASE("run length: a queue leaves what the processor needs to keep up") {
    RunLength length(2, 44);
    CHECK(after(length, 1, {.queue = true, .needed = 15}) == 15);
    CHECK(after(length, 1, {.queue = true, .needed = 1}) == 2);
    CHECK(after(length, 1, {.queue = true, .needed = UINT64_MAX}) == 44);
    // 1 Gbit/s for some milliseconds is 6 KB in 50 us; a pause changes nothing.
    RecentRate rate;
    for (std::int64_t us = 0; us < 5000; us += 12) rate.add(Time{us * 1000}, 1500);
    CHECK(rate.bytes_in_run_time() == doctest::Approx(6250).epsilon(0.02));
    rate.add(Time{9'000'000'000}, 1500);
    CHECK(rate.bytes_in_run_time() == doctest::Approx(6250).epsilon(0.02));
}

TEST_CASE("run length: bounds hold, and equal ones fix it") {
    RunLength length(16, 16);
    CHECK(after(length, 3, {.queue = true}) == 16);
    CHECK(after(length, 3) == 16);
    length = RunLength(64, 15);  // what one super-packet holds is less than the least: it holds
    CHECK(length.packets() == 15);
}

TEST_CASE("run length: marks do not shorten the runs of a sender that its processor limits") {
    RunLength length(1, 44);
    CHECK(after(length, 1, {.queue = true}) == 1);
    CHECK(after(length, 20, {.queue = true, .limited = false}) == 44);
}

TEST_CASE("run length: rounds that hold no whole run say nothing about longer ones") {
    RunLength length(1, 44);
    CHECK(after(length, 1, {.queue = true}) == 1);
    CHECK(after(length, 100, {.packets = 10}) == 16);
}

TEST_CASE("run length: where switches spray, runs are long whatever is marked; single packets contain pairs") {
    RunLength length(1, 44);
    after(length, 1, {.queue = true});
    int pairs = 0;
    for (int i = 0; i < 310; ++i) pairs += length.next_run() == 2;
    CHECK(pairs == 10);
    CHECK(after(length, 1, {.queue = true, .sprayed = true}) == 44);
    length = RunLength(1, 1);
    for (int i = 0; i < 310; ++i) CHECK(length.next_run() == 1);
}

TEST_CASE("run length: few packets in a row take all paths, many take few") {
    RunLength length(1, 44);
    after(length, 1, {.queue = true});
    CHECK(length.paths(64) == 64);
    CHECK(length.paths(4) == 4);
    after(length, 100);
    CHECK(length.paths(64) == 8);
}

TEST_CASE("sprayed: seen by pairs that are overtaken, forgotten when none are, or as it was said") {
    Sprayed seen{SwitchesSpray::automatic};
    for (int i = 0; i < 1000; ++i) seen.on_pair(i % 100 == 0);  // a route that changes now and then
    CHECK_FALSE(seen.yes());
    for (int i = 0; i < 200; ++i) seen.on_pair(i % 7 == 0);
    CHECK(seen.yes());
    for (int i = 0; i < 1000; ++i) seen.on_pair(false);
    CHECK_FALSE(seen.yes());
    Sprayed told{SwitchesSpray::yes}, denied{SwitchesSpray::no};
    for (int i = 0; i < 1000; ++i) told.on_pair(false), denied.on_pair(true);
    CHECK(told.yes());
    CHECK_FALSE(denied.yes());
}

// ArrivalDelays: one-way delays by clocks that are not synchronised.
#include <doctest/doctest.h>

#include "engine/arrival_delays.hpp"

namespace dlcp {
namespace {

// What the other clock is ahead of this one: any number, and near the end of 32 bits.
constexpr std::uint32_t skew = UINT32_MAX - 500;
constexpr std::uint32_t us = 1000;
const Time start{0};

TEST_CASE("arrival delays: the queueing delay is the median above the least") {
    ArrivalDelays delays;
    delays.sample_control(start, skew + 10 * us);  // overtook the queue
    for (const std::uint32_t queued : {300, 100, 200}) delays.sample_data(start, 0, skew + (10 + queued) * us);
    CHECK(delays.take_median() == 200 * us + 1);
}

TEST_CASE("arrival delays: no data since the last time is 0") {
    ArrivalDelays delays;
    CHECK(delays.take_median() == 0);
    delays.sample_data(start, 0, skew);
    CHECK(delays.take_median() == 1);
    CHECK(delays.take_median() == 0);
}

TEST_CASE("arrival delays: the least is forgotten after two epochs, as clocks drift") {
    ArrivalDelays delays;
    delays.sample_control(start, skew);
    for (int s = 0; s <= 12; ++s) delays.sample_control(start + seconds(s), skew + 50 * us);
    delays.sample_data(start + seconds(12), 0, skew + 60 * us);
    CHECK(delays.take_median() == 10 * us + 1);
}

TEST_CASE("arrival delays: a straggler may take as long as the slowest lane did, and a margin") {
    ArrivalDelays delays;
    delays.sample_data(start, 0, skew + 10 * us);
    delays.sample_data(start, 1, skew + 90 * us);
    const Duration margin = delays.straggler_margin(start, skew + 10 * us, 0, 2, seconds(1));
    CHECK(margin == microseconds(80 + 80 / 4));
    // A lane that was not seen of late tells nothing.
    CHECK(delays.straggler_margin(start + seconds(2), skew + 10 * us, 0, 2, seconds(1)) == Duration{0});
}

}  // namespace
}  // namespace dlcp

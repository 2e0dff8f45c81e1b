// How many blocks a worker has in flight, and how long it waits for one.
#include "aggregation/send_window.hpp"

#include <doctest/doctest.h>

using dlcp::aggregation::SendWindow;

namespace {

constexpr std::int64_t ms = 1'000'000;

std::uint32_t window(const SendWindow& pace) {
    std::uint32_t blocks = 0;
    while (pace.has_room(blocks)) ++blocks;
    return blocks;
}

void results(SendWindow& pace, int count, std::int64_t took_ns) {
    for (int i = 0; i < count; ++i) pace.handle_result(took_ns);
}

}  // namespace

TEST_CASE("send window: doubles until a block has to be sent again, then grows by one") {
    SendWindow pace(100, 10 * ms);
    CHECK(window(pace) == 8);
    results(pace, 8, ms);
    CHECK(window(pace) == 16);
    pace.handle_wait_over(50 * ms);
    pace.handle_wait_over(51 * ms);  // of the same burst
    CHECK(window(pace) == 8);
    results(pace, 9, ms);
    CHECK(window(pace) == 9);
    results(pace, 20'000, ms);
    CHECK(window(pace) == 100);
    for (int turn = 0; turn < 20; ++turn) pace.handle_wait_over((100 + 20 * turn) * ms);
    CHECK(window(pace) == 2);
}

TEST_CASE("send window: of the smallest range one block is in flight") {
    SendWindow pace(1, 10 * ms);
    pace.handle_wait_over(0);
    CHECK(window(pace) == 1);
}

TEST_CASE("send window: the wait follows what blocks take, within its bounds") {
    SendWindow pace(100, 10 * ms);
    CHECK(pace.wait_ns() == 10 * ms);
    results(pace, 100, 40 * ms);
    CHECK(pace.wait_ns() >= 40 * ms);
    CHECK(pace.wait_ns() < 45 * ms);
    results(pace, 100, ms);
    CHECK(pace.wait_ns() == 10 * ms);
    results(pace, 100, 5000 * ms);
    CHECK(pace.wait_ns() == 1000 * ms);
}

// UetWindow: NSCC's window as acknowledgements, marks and losses move it.
#include "sim/core/transports/uet_window.hpp"

#include <doctest/doctest.h>

namespace dlcp::sim {
namespace {

constexpr UetWindowSettings settings{4096, 4160, 0.0125};
constexpr double most = 225'000;  // 1.5 bandwidth-delay products
constexpr std::int64_t rtt_ps = 12'000'000, target_ps = 9'000'000;

UetWindow window() { return {most, 100e9 / 8e12, rtt_ps, rtt_ps, target_ps}; }

// Acknowledges `count` times four packets that came with this delay, an eighth of a round trip apart.
void acknowledge(UetWindow& w, int count, bool marked, std::int64_t delay_ps, std::int64_t from_ps = 0) {
    for (int i = 0; i < count; ++i)
        w.on_ack(settings, from_ps + i * rtt_ps / 8, w.bytes(), marked, delay_ps, 4 * settings.packet_bytes);
}

TEST_CASE("uet window: it starts at its greatest and stays there without queues") {
    UetWindow w = window();
    CHECK(w.bytes() == most);
    acknowledge(w, 100, false, 0);
    CHECK(w.bytes() == most);
}

TEST_CASE("uet window: marks with a delay beyond the target shrink it, marks alone do not") {
    UetWindow w = window();
    acknowledge(w, 100, true, target_ps / 2);
    CHECK(w.bytes() == most);
    acknowledge(w, 200, true, 3 * target_ps, 100 * rtt_ps);
    CHECK(w.bytes() < most);
    CHECK(w.bytes() > settings.packet_bytes);
}

TEST_CASE("uet window: it grows back once the queue is gone") {
    UetWindow w = window();
    acknowledge(w, 200, true, 3 * target_ps);
    const double low = w.bytes();
    acknowledge(w, 200, false, 0, 200 * rtt_ps);
    CHECK(w.bytes() > low);
}

TEST_CASE("uet window: a packet lost outside congestion costs one packet, down to one packet") {
    UetWindow w = window();
    CHECK_FALSE(w.on_loss(settings, 0, w.bytes(), false));
    CHECK(w.bytes() == most - settings.packet_bytes);
    w.on_timeout(settings, 1000);
    CHECK(w.bytes() == settings.packet_bytes);
}

TEST_CASE("uet window: after a round trip with little delivered it becomes what was delivered") {
    UetWindow w = window();
    const auto in_flight = w.bytes();
    CHECK_FALSE(w.on_loss(settings, 1, in_flight, true));  // the first round trip begins
    w.on_ack(settings, 2, in_flight, false, 0, 2 * settings.packet_bytes);
    CHECK(w.on_loss(settings, 1 + rtt_ps + target_ps + 1, in_flight, true));
    CHECK(w.bytes() == 2 * settings.packet_bytes);
}

}  // namespace
}  // namespace dlcp::sim

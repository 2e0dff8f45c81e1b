// Whether a window holds its own beside senders that answer loss alone: the class by hand, and the window control in a
// fluid model of a queue.
#include "engine/congestion/competition.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "engine/config.hpp"
#include "engine/congestion/controllers.hpp"

using namespace dlcp;

namespace {

constexpr std::uint16_t packet = 1000;
constexpr Duration target = milliseconds(1);
constexpr Duration queue = milliseconds(20);

// Halves the window for so many rounds of this delay.
std::int64_t yield(Competition& competition, int rounds, std::int64_t window, Duration delay = queue) {
    for (int i = 0; i < rounds; ++i) window = competition.yielded(Time{0}, delay, window, window / 2);
    return window;
}

Competition::Round round_at(Time now) {
    return {
        .now = now, .least = queue, .median = queue, .target = target, .rtt = milliseconds(200), .limited = true};
}

}  // namespace

TEST_CASE("competition: five rounds of yielding without effect bring back the window of their begin") {
    Competition competition(packet);
    CHECK(yield(competition, 4, 64'000) == 4'000);
    CHECK(!competition.on());
    CHECK(competition.yielded(Time{0}, queue, 4'000, 2'000) == 64'000);
    CHECK(competition.on());
}

TEST_CASE("competition: a round that did not yield, or a delay that falls, begins the count again") {
    Competition competition(packet);
    yield(competition, 4, 64'000);
    competition.not_yielded();
    CHECK(yield(competition, 4, 64'000) == 4'000);
    CHECK(competition.yielded(Time{0}, queue / 2, 4'000, 2'000) == 2'000);
    CHECK(!competition.on());
    // Nothing was yielded that could have an effect: others of this kind may share the queue.
    Competition least(packet);
    for (int i = 0; i < 20; ++i) CHECK(least.yielded(Time{0}, queue, 2'000, 2'000) == 2'000);
    CHECK(!least.on());
}

TEST_CASE("competition: the window grows along CUBIC's curve, and keeps seven tenths when a full buffer loses") {
    Competition competition(packet);
    std::int64_t window = yield(competition, 5, 64'000);
    Time now{0};
    std::int64_t before = window;
    while (window < 128'000) {
        now = now + milliseconds(200);
        window = competition.end_round(round_at(now), window);
        CHECK(window >= before);
        CHECK(window <= before * 3 / 2);
        before = window;
    }
    // C (t - K)^3 = 64 packets, K of 64 packets: 5.43 + 3.63 s; Reno's line is below.
    CHECK(now > Time{0} + milliseconds(8700));
    CHECK(now < Time{0} + milliseconds(9200));
    Competition::Round full = round_at(now + milliseconds(20));
    full.lost = true;
    CHECK(competition.end_round(full, window) == window * 7 / 10);
    // Chance takes a packet elsewhere: at half the delay the buffer is not full.
    Competition::Round chance = round_at(now + milliseconds(40));
    chance.lost = true;
    chance.median = queue / 2;
    CHECK(competition.end_round(chance, 80'000) >= 80'000);
}

TEST_CASE("competition: it ends when the queue has been nearly empty, at a mark, and after its turn") {
    for (int how = 0; how < 3; ++how) {
        Competition competition(packet);
        const std::int64_t window = yield(competition, 5, 64'000);
        Competition::Round last = round_at(Time{0} + milliseconds(20));
        if (how == 0) last.least = target / 4;
        if (how == 1) last.now = Time{0} + seconds(21);
        if (how == 2) competition.stop();
        if (how != 2) CHECK(competition.end_round(last, window) == window);
        CHECK(!competition.on());
    }
}

// A link of 50 Mbit/s with a round trip of 2 ms. `others`: who fills its queue to 200 kB, whatever room is left.
TEST_CASE(
    "competition: a queue of the window's own drains, that of others does not, and only they are competed with") {
    for (const bool others : {false, true}) {
        EndpointConfig c;
        c.target_delay = target;
        c.initial_window = Bytes{64'000};
        const std::unique_ptr<CongestionControl> control = make_window_control(c, packet, milliseconds(2));
        constexpr double bytes_per_ns = 50e6 / 8e9;
        Time now{0};
        Duration longest{0};
        for (int i = 0; i < 400; ++i) {
            const auto window = static_cast<std::int64_t>(control->window({}).value);
            const double own = std::max(0.0, static_cast<double>(window) - 2e6 * bytes_per_ns);
            const double queued = others ? std::max(own, 200'000.0) : own;
            AckSample s;
            s.queue_delay = Duration{static_cast<std::int64_t>(queued / bytes_per_ns)};
            s.base_rtt = milliseconds(2);
            s.rtt = s.base_rtt + s.queue_delay;
            now = now + s.rtt;
            s.now = now;
            s.acked = s.in_flight = Bytes{static_cast<std::uint64_t>(window)};
            s.acked_packets = static_cast<std::uint32_t>(window / packet);
            s.round_over = true;
            control->on_ack(s);
            if (i > 300) longest = std::max(longest, s.queue_delay);
        }
        if (others)
            CHECK(control->window({}).value > 64'000);
        else
            CHECK(longest < target * 3);
    }
}

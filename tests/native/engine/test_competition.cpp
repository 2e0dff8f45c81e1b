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
    Competition::Round chance = round_at(now + milliseconds(400));
    chance.median = queue / 2;
    CHECK(competition.end_round(round_at(now + milliseconds(220)), 80'000) >= 80'000);
    chance.lost = true;
    CHECK(competition.end_round(chance, 80'000) >= 80'000);
    // Much of a round lost is no chance.
    chance.lossy = true;
    CHECK(competition.end_round(chance, 80'000) == 56'000);
}

TEST_CASE(
    "competition: loss that lasts cuts every second round, since what was sent before a cut is lost after it") {
    Competition competition(packet);
    std::int64_t window = yield(competition, 5, 64'000);
    for (int i = 1; i <= 6; ++i) {
        Competition::Round full = round_at(Time{0} + milliseconds(200 * i));
        full.lost = true;
        const std::int64_t before = window;
        window = competition.end_round(full, window);
        CHECK(window == (i % 2 == 1 ? before * 7 / 10 : before));
    }
}

TEST_CASE("competition: a rate that follows the window says that others hold the queue, for a turn") {
    for (const bool follows : {false, true}) {
        Competition competition(packet);
        Time now{0};
        for (int i = 0; i < 64; ++i) {
            now = now + milliseconds(10);
            const std::int64_t window = 50'000 + 20'000 * (i % 4);
            // The rate stays, or goes half the way of the window.
            const std::uint64_t acked = follows ? 40'000 + 10'000 * static_cast<std::uint64_t>(i % 4) : 60'000;
            competition.note_rate(now, window, Bytes{acked}, milliseconds(10));
        }
        CHECK(competition.outweighed(now) == follows);
        CHECK(!competition.outweighed(now + seconds(20)));
    }
}

TEST_CASE("competition: idle time does not count on the curve") {
    Competition competition(packet);
    const std::int64_t window = yield(competition, 5, 64'000);
    Competition::Round idle = round_at(Time{0} + seconds(8));
    idle.limited = false;
    CHECK(competition.end_round(idle, window) == window);
    CHECK(competition.end_round(round_at(Time{0} + milliseconds(8200)), window) == window + 9 * packet / 17);
}

TEST_CASE("competition: it ends when the queue has been nearly empty, and after its turn") {
    for (int how = 0; how < 2; ++how) {
        Competition competition(packet);
        const std::int64_t window = yield(competition, 5, 64'000);
        Competition::Round last = round_at(Time{0} + milliseconds(20));
        if (how == 0) last.least = target / 4;
        if (how == 1) last.now = Time{0} + seconds(21);
        CHECK(competition.end_round(last, window) == window);
        CHECK(!competition.on());
    }
}

namespace {

// A window control at a link of 50 Mbit/s with a round trip of 2 ms, round by round.
struct Fluid {
    static constexpr double bytes_per_ns = 50e6 / 8e9;

    explicit Fluid(std::uint64_t initial_window) {
        EndpointConfig c;
        c.target_delay = target;
        c.initial_window = Bytes{initial_window};
        control = make_window_control(c, packet, milliseconds(2));
    }
    std::int64_t window() const { return static_cast<std::int64_t>(control->window().value); }

    // Others hold at least `others` bytes of the queue's, whatever room is left.
    void rounds(int count, double others, double filled = 1.0, std::uint32_t marked = 0) {
        for (int i = 0; i < count; ++i) {
            const double own = std::max(0.0, static_cast<double>(window()) - 2e6 * bytes_per_ns);
            AckSample s;
            s.queue_delay = Duration{static_cast<std::int64_t>(std::max(own, others) / bytes_per_ns)};
            s.base_rtt = milliseconds(2);
            s.rtt = s.base_rtt + s.queue_delay;
            now = now + s.rtt;
            s.now = now;
            s.acked = s.in_flight = Bytes{static_cast<std::uint64_t>(static_cast<double>(window()) * filled)};
            s.acked_packets = static_cast<std::uint32_t>(s.acked.value / packet);
            s.ce_packets = marked;
            s.alone = alone;
            s.round_over = true;
            control->on_ack(s);
            delay = s.queue_delay;
        }
    }

    std::unique_ptr<CongestionControl> control;
    bool alone = true;
    Duration delay{0};
    Time now{0};
};

}  // namespace

TEST_CASE("competition: a queue of the window's own drains, and is not competed with") {
    Fluid fluid(64'000);
    fluid.rounds(400, 0);
    CHECK(fluid.delay < target * 3);
}

TEST_CASE("competition: a queue that others hold is competed with, once the window has yielded in vain") {
    Fluid fluid(64'000);
    fluid.rounds(400, 200'000);
    CHECK(fluid.window() > 150'000);
    // A switch that marks ends it.
    Fluid marks(64'000);
    marks.rounds(400, 200'000);
    marks.rounds(1, 200'000, 1.0, 1);
    marks.rounds(10, 200'000);
    CHECK(marks.window() < 20'000);
    // Two probes without an answer: another network.
    const std::int64_t before = fluid.window();
    fluid.control->on_timeout(2);
    CHECK(fluid.window() == before / 2);
    fluid.rounds(2, 200'000);
    CHECK(fluid.window() < before / 2);
}

TEST_CASE("competition: who has nothing to yield, sends little, or is marked does not compete") {
    Fluid least(2 * packet);
    least.rounds(400, 200'000);
    CHECK(least.window() == 2 * packet);
    Fluid sparse(64'000);
    sparse.rounds(400, 200'000, 0.1);
    CHECK(sparse.window() == 2 * packet);
    Fluid marked(64'000);
    marked.rounds(1, 200'000, 1.0, 1);
    marked.rounds(400, 200'000);
    CHECK(marked.window() == 2 * packet);
    // Others of its kind send to the same receiver.
    Fluid together(64'000);
    together.alone = false;
    together.rounds(400, 200'000);
    CHECK(together.window() == 2 * packet);
}

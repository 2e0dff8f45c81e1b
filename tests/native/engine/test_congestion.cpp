// What congestion controls make of a round: by hand, without an endpoint.
#include <doctest/doctest.h>

#include <memory>

#include "engine/config.hpp"

using namespace dlcp;

namespace {

constexpr std::uint16_t datagram = 1000;

EndpointConfig config() {
    EndpointConfig c;
    c.target_delay = microseconds(100);
    c.initial_window = c.max_window = Bytes{100'000};
    return c;
}

// A whole round in one acknowledgement.
AckSample round(std::uint64_t acked_bytes, std::uint64_t lost_bytes, Duration queue_delay,
                std::uint32_t ce_packets = 0) {
    AckSample s;
    s.acked = Bytes{acked_bytes};
    s.lost = Bytes{lost_bytes};
    s.acked_packets = static_cast<std::uint32_t>(acked_bytes / datagram);
    s.ce_packets = ce_packets;
    s.in_flight = Bytes{acked_bytes + lost_bytes};
    s.rtt = microseconds(50);
    s.queue_delay = queue_delay;
    s.round_over = true;
    return s;
}

// The window before and after a round, slow start being over.
struct Change {
    std::uint64_t before;
    std::uint64_t after;
};

Change change(const AckSample& sample) {
    const std::unique_ptr<CongestionControl> control = make_window_control(config(), datagram, Duration{0});
    control->on_ack(round(50'000, 0, Duration{0}, 1));  // a mark ends slow start
    const std::uint64_t before = control->window().value;
    // Quick adapt judges whole periods, here of the target: an empty answer ends the one that has begun.
    AckSample empty;
    empty.now = Time{0} + microseconds(100);
    control->on_ack(empty);
    AckSample last = sample;
    last.now = empty.now + microseconds(100);
    control->on_ack(last);
    return {before, control->window().value};
}

}  // namespace

TEST_CASE("window control: who loses most of a round before a long queue keeps what got through") {
    CHECK(change(round(20'000, 80'000, microseconds(110))).after == 20'000);
    // Marks on most of what arrives tell of it as well; a few do not.
    CHECK(change(round(30'000, 70'000, Duration{0}, 20)).after == 30'000);
    CHECK(change(round(30'000, 70'000, Duration{0}, 10)).after > 80'000);
    // At least two packets, so that something can be acknowledged.
    CHECK(change(round(1'000, 99'000, microseconds(110))).after == 2 * datagram);
}

TEST_CASE("window control: without a queue even most of a round lost halves the window only") {
    const Change found = change(round(20'000, 80'000, Duration{0}));
    CHECK(found.after == found.before - found.before / 2);
}

TEST_CASE("window control: with a queue, less than half lost takes three tenths") {
    const Change found = change(round(60'000, 40'000, microseconds(60)));
    CHECK(found.after == found.before - found.before * 30 / 100);
}

TEST_CASE("window control: a tenth trimmed is a full queue, whatever its delay") {
    AckSample trimmed = round(80'000, 10'000, Duration{0});
    trimmed.trimmed = true;
    CHECK(change(trimmed).after == 80'000);
    trimmed.lost = Bytes{5'000};
    CHECK(change(trimmed).after > 80'000);
}

TEST_CASE(
    "window control: marks without a queue leave the window, and the queue is judged by the path's round trip") {
    AckSample marked = round(80'000, 0, microseconds(100), 40);
    marked.base_rtt = microseconds(200);
    CHECK(change(marked).after == change(marked).before);
    marked.queue_delay = microseconds(160);  // three quarters of the base round trip are 150
    CHECK(change(marked).after < change(marked).before);
    // Above the target of 100 us, but not of that of a path of 10 ms.
    AckSample far = round(80'000, 0, milliseconds(1));
    CHECK(change(far).after < change(far).before);
    far.base_rtt = milliseconds(10);
    CHECK(change(far).after >= change(far).before);
}

TEST_CASE("window control: where line rate and round trip are known, it begins with one and a half products") {
    EndpointConfig c = config();
    CHECK(make_window_control(c, datagram, milliseconds(1))->window() == c.initial_window);
    c.line_rate = Rate{8'000'000'000};
    CHECK(make_window_control(c, datagram, milliseconds(1))->window() == c.max_window);
    c.max_window = Bytes{10'000'000};
    CHECK(make_window_control(c, datagram, milliseconds(1))->window() == Bytes{1'500'000});
    CHECK(make_window_control(c, datagram, Duration{0})->window() == c.initial_window);
    // The handshake's answer had waited at the peer: the first packet knows better.
    const std::unique_ptr<CongestionControl> late = make_window_control(c, datagram, milliseconds(1));
    AckSample first;
    first.base_rtt = microseconds(100);
    late->on_ack(first);
    CHECK(late->window() == Bytes{150'000});
}

TEST_CASE("window control: a trimmed packet of a short message says nothing about a window that was not full") {
    AckSample trimmed = round(3'000, 1'000, Duration{0});
    trimmed.trimmed = true;
    CHECK(change(trimmed).after > 80'000);
}

TEST_CASE("auto control: turns that grow, and rounds full of them, leave no window above the turn") {
    EndpointConfig c = config();
    c.max_window = Bytes{10'000'000};
    const auto control = make_auto_control(c, datagram, Duration{0});
    control->on_ack(round(50'000, 0, Duration{0}, 1));
    AckSample full = round(150'000, 0, Duration{0});
    full.base_rtt = full.rtt;
    for (int turn = 0; turn < 100; ++turn) {
        full.now = full.now + milliseconds(1);
        control->begin_turn(full.now, Bytes{10'000});
        control->begin_turn(full.now, Bytes{150'000});
        CHECK(control->window() == Bytes{150'000});
        full.now = full.now + milliseconds(1);
        control->on_ack(full);
        CHECK(control->window() == Bytes{150'000});
        control->end_turn(true);
    }
    full.now = full.now + milliseconds(1);
    control->on_ack(full);
    CHECK(control->window() > Bytes{150'000});  // without turns what got through says that more may
}

TEST_CASE("auto control: turns that raise no window let marks lower it") {
    EndpointConfig c = config();
    c.max_window = c.initial_window = Bytes{500'000};
    const auto control = make_auto_control(c, datagram, Duration{0});
    AckSample marked = round(400'000, 0, microseconds(90), 400);
    for (int turn = 0; turn < 100; ++turn) {
        marked.now = marked.now + microseconds(60);
        control->begin_turn(marked.now, Bytes{50'000});
        control->on_ack(marked);
        control->end_turn(true);
    }
    CHECK(control->window() < Bytes{100'000});
}

TEST_CASE("line rate: a round whose droppable packets are trimmed halves the rate") {
    EndpointConfig c;
    c.line_rate = Rate{8'000'000'000};
    const auto control = make_line_rate_control(c, datagram, Duration{0});
    AckSample sample;
    sample.trimmed = sample.round_over = true;
    sample.acked_packets = sample.ce_packets = 10;  // as handle_trimmed reports them
    control->on_ack(sample);
    CHECK(control->pacing_rate(seconds(1)) == Rate{4'000'000'000});
}

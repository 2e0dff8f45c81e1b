// What the window control makes of a round: by hand, without an endpoint.
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
    const std::unique_ptr<CongestionControl> control = make_window_control(config(), datagram);
    control->on_ack(round(50'000, 0, Duration{0}, 1));  // a mark ends slow start
    const std::uint64_t before = control->window({}).value;
    control->on_ack(sample);
    return {before, control->window({}).value};
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

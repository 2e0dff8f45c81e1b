// The pacer keeps its rate, and what it is ahead of is bytes, not time.
#include <doctest/doctest.h>

#include "engine/pacer.hpp"

using namespace dlcp;

namespace {

constexpr Bytes packet{1000};
constexpr Rate slow{8'000'000};      // a packet per millisecond
constexpr Rate fast{8'000'000'000};  // a packet per microsecond

// Sends all that may leave now.
int drain(Pacer& pacer, Time now) {
    int packets = 0;
    while (pacer.allowed_bytes(now) >= packet.value) {
        pacer.on_sent(now, packet);
        ++packets;
    }
    return packets;
}

}  // namespace

TEST_CASE("pacer: a rate that rises a thousandfold is kept at once, whatever was sent at the old one") {
    Pacer pacer;
    Time now{1'000'000'000};
    pacer.set(now, slow, packet * 2, Duration{0});
    CHECK(drain(pacer, now) == 2);
    pacer.set(now, fast, packet * 2, Duration{0});
    now = now + microseconds(4);
    CHECK(drain(pacer, now) == 2);  // the two of before are due within two microseconds, not milliseconds
}

TEST_CASE("pacer: a rate that falls makes what was sent take longer") {
    Pacer pacer;
    Time now{1'000'000'000};
    pacer.set(now, fast, packet * 4, Duration{0});
    CHECK(drain(pacer, now) == 4);
    pacer.set(now, slow, packet * 2, Duration{0});
    CHECK(drain(pacer, now + milliseconds(1)) == 0);
    CHECK(drain(pacer, now + milliseconds(3)) == 1);
}

TEST_CASE("pacer: over a second the rate is exact to one allowance") {
    Pacer pacer;
    const Time start{1'000'000'000};
    pacer.set(start, slow, packet * 2, Duration{0});
    int packets = 0;
    for (Time now = start; now < start + seconds(1); now = now + microseconds(137)) packets += drain(pacer, now);
    CHECK(packets >= 1000);
    CHECK(packets <= 1003);
}

// ReceiveCoalescing: who may nap while a message arrives, and for how long.
#include "engine/receive_coalescing.hpp"

#include <doctest/doctest.h>

namespace dlcp {
namespace {

constexpr Bytes large_buffer{16 << 20};

// The nap after 5 ms of full packets at this distance, of a message that then lacks `missing_bytes`.
Duration nap_of(Duration distance, std::uint32_t missing_bytes, Bytes buffer = large_buffer,
                bool by_channel = false) {
    ReceiveCoalescing coalescing;
    Time now{0};
    for (; now < Time{0} + milliseconds(5); now = now + distance) {
        coalescing.on_data(1408, missing_bytes, by_channel);
        coalescing.end_batch(now, buffer);
    }
    return coalescing.nap(now);
}

constexpr Duration at_1g = nanoseconds(11'900), at_10g = nanoseconds(1'190);
constexpr std::uint32_t much = 32 << 20;

}  // namespace

TEST_CASE("receive coalescing: on a slow link naps last for two dozen packets of a long message") {
    const Duration nap = nap_of(at_1g, much);
    CHECK(nap >= at_1g * 22);
    CHECK(nap <= at_1g * 26);
    CHECK(nap_of(microseconds(100), much) <= microseconds(400));
}

TEST_CASE(
    "receive coalescing: nobody naps before the end of a message, on a fast link, with a small buffer, or beside "
    "a channel") {
    CHECK(nap_of(at_1g, 8 * 1408) == Duration{0});
    CHECK(nap_of(at_10g, much) == Duration{0});
    CHECK(nap_of(at_1g, much, Bytes{64 << 10}) == Duration{0});
    CHECK(nap_of(at_1g, much, large_buffer, true) == Duration{0});
}

TEST_CASE("receive coalescing: a message that no longer arrives lets nobody nap") {
    ReceiveCoalescing coalescing;
    Time now{0};
    for (; now < Time{0} + milliseconds(5); now = now + at_1g) {
        coalescing.on_data(1408, 1 << 30, false);
        coalescing.end_batch(now, large_buffer);
    }
    CHECK(coalescing.nap(now) > Duration{0});
    CHECK(coalescing.nap(now + milliseconds(5)) == Duration{0});
}

}  // namespace dlcp

// RttEstimator: RFC 6298's estimate.
#include <doctest/doctest.h>

#include "engine/rtt_estimator.hpp"

namespace dlcp {
namespace {

TEST_CASE("rtt estimator: before a sample it is the initial value") {
    const RttEstimator rtt(milliseconds(8));
    CHECK(rtt.smoothed() == milliseconds(8));
    CHECK(rtt.latest() == milliseconds(8));
    CHECK(rtt.min() == milliseconds(8));
    CHECK(rtt.timeout(Duration{0}) == milliseconds(8 + 4 * 4));
}

TEST_CASE("rtt estimator: the first sample replaces it, half of it is the deviation") {
    RttEstimator rtt(seconds(1));
    rtt.sample(microseconds(80));
    CHECK(rtt.smoothed() == microseconds(80));
    CHECK(rtt.timeout(Duration{0}) == microseconds(80 + 4 * 40));
}

TEST_CASE("rtt estimator: later samples count an eighth, their error a quarter (RFC 6298 section 2)") {
    RttEstimator rtt;
    rtt.sample(microseconds(80));
    rtt.sample(microseconds(160));
    CHECK(rtt.smoothed() == microseconds(90));
    CHECK(rtt.timeout(Duration{0}) == microseconds(90) + microseconds(50) * 4);
    CHECK(rtt.latest() == microseconds(160));
    CHECK(rtt.min() == microseconds(80));
}

TEST_CASE("rtt estimator: the floor keeps a steady path from timing out at once") {
    RttEstimator rtt;
    CHECK(rtt.timeout(microseconds(200)) == milliseconds(10) + milliseconds(5) * 4);
    for (int i = 0; i < 100; ++i) rtt.sample(microseconds(100));
    CHECK(rtt.timeout(microseconds(200)) == microseconds(200));
    for (int i = 0; i < 100; ++i) rtt.sample(microseconds(10));
    CHECK(rtt.timeout(microseconds(200)) == microseconds(30));
}

TEST_CASE("rtt estimator: on a long path that was even for a while an eighth more is not overdue") {
    RttEstimator rtt;
    for (int i = 0; i < 100; ++i) rtt.sample(milliseconds(100));
    CHECK(rtt.timeout(microseconds(200)) == milliseconds(100) + milliseconds(100) / 8);
}

TEST_CASE("rtt estimator: a sample is at least a nanosecond") {
    RttEstimator rtt;
    rtt.sample(nanoseconds(-5));
    CHECK(rtt.smoothed() == nanoseconds(1));
    CHECK(rtt.timeout(microseconds(200)) == microseconds(10));
}

}  // namespace
}  // namespace dlcp

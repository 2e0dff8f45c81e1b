// Smoothed round-trip time, its deviation and its minimum (RFC 6298 section 2, with RFC 9002's 4 x deviation).
#pragma once

#include <algorithm>

#include "engine/units.hpp"

namespace dlcp {

class RttEstimator {
public:
    explicit RttEstimator(Duration initial = milliseconds(10)) : smoothed_(initial), deviation_(initial / 2) {}

    void sample(Duration rtt) {
        rtt = std::max(rtt, nanoseconds(1));
        latest_ = rtt;
        if (!measured_) {
            measured_ = true;
            smoothed_ = rtt;
            deviation_ = rtt / 2;
            min_ = rtt;
            return;
        }
        min_ = std::min(min_, rtt);
        const Duration error = rtt < smoothed_ ? smoothed_ - rtt : rtt - smoothed_;
        deviation_ = (deviation_ * 3 + error) / 4;
        smoothed_ = (smoothed_ * 7 + rtt) / 8;
    }
    bool measured() const { return measured_; }
    Duration smoothed() const { return smoothed_; }
    Duration latest() const { return measured_ ? latest_ : smoothed_; }
    Duration min() const { return measured_ ? min_ : smoothed_; }
    // How long to wait for an answer before it counts as overdue. `floor` keeps timer granularity out of it, as three of
    // the shortest round trips do where these are less: a fabric of microseconds loses last packets too. On a long path
    // that was even for a while the deviation is next to nothing, and any queue would be more: an eighth of the round
    // trip is allowed for (RFC 9002 section 6.1.2).
    Duration timeout(Duration floor) const {
        const Duration least = measured_ ? std::max(min_ * 3, least_floor) : floor;
        return std::max(smoothed_ + std::max(deviation_ * 4, smoothed_ / 8), std::min(floor, least));
    }

private:
    // A peer that says that it held an answer for as long as it took makes a round trip of nothing.
    static constexpr Duration least_floor = microseconds(10);

    Duration smoothed_;
    Duration deviation_;
    Duration min_{0};
    Duration latest_{0};
    bool measured_ = false;
};

}  // namespace dlcp

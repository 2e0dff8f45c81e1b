// One-way delays of arriving packets, by clocks that are not synchronised.
//
// Only differences between delays mean anything: the least of the last seconds stands for an empty path. Times are
// 32-bit nanoseconds as in the header; differences are right within +-2.1 s.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/units.hpp"

namespace dlcp {

// Receiver: medians for acknowledgements, and the largest recent delay, which tells how long a straggler may take.
class ArrivalDelays {
public:
    void sample(Time now, std::uint32_t delay_ns, Duration epoch) {
        if (count_ < samples_.size()) samples_[count_++] = delay_ns;
        if (!started_) {
            started_ = true;
            reference_ = delay_ns;
            least_ = most_ = most_before_ = 0;
            epoch_start_ = now;
        }
        const auto relative = static_cast<std::int32_t>(delay_ns - reference_);
        if (now - epoch_start_ > epoch) {
            most_before_ = most_;
            most_ = relative;
            least_before_ = least_;
            least_ = relative;
            epoch_start_ = now;
        }
        most_ = std::max(most_, relative);
        least_ = std::min(least_, relative);
    }
    // Median since the last call; 0 if there was no sample.
    std::uint32_t take_median() {
        if (count_ == 0) return 0;
        // Relative to the first, so that a wrap inside the samples does not matter.
        std::array<std::int32_t, 32> relative;
        for (std::size_t i = 0; i < count_; ++i) relative[i] = static_cast<std::int32_t>(samples_[i] - samples_[0]);
        auto middle = relative.begin() + static_cast<std::ptrdiff_t>(count_ / 2);
        std::nth_element(relative.begin(), middle, relative.begin() + static_cast<std::ptrdiff_t>(count_));
        const std::uint32_t median = samples_[0] + static_cast<std::uint32_t>(*middle);
        count_ = 0;
        return median == 0 ? 1 : median;
    }
    // How much longer than a packet with this delay the slowest packet of the last two epochs took, and a quarter
    // of the spread as a margin.
    Duration straggler_margin(std::uint32_t delay_ns) const {
        if (!started_) return {0};
        const std::int64_t relative = static_cast<std::int32_t>(delay_ns - reference_);
        const std::int64_t most = std::max(most_, most_before_);
        const std::int64_t spread = most - std::min(least_, least_before_);
        return {std::max<std::int64_t>(most - relative, 0) + spread / 4};
    }

private:
    std::array<std::uint32_t, 32> samples_{};
    std::size_t count_ = 0;
    bool started_ = false;
    std::uint32_t reference_ = 0;
    std::int32_t most_ = 0, most_before_ = 0;
    std::int32_t least_ = 0, least_before_ = 0;
    Time epoch_start_{0};
};

// Sender: queueing delay from the medians it is told: what lies above the least of the last 5 to 10 seconds (clocks
// drift apart by some 50 us/s).
class QueueDelay {
public:
    // Negative if `delay_ns` is 0 (no sample).
    Duration update(Time now, std::uint32_t delay_ns) {
        if (delay_ns == 0) return {-1};
        if (!started_) {
            started_ = true;
            least_ = least_before_ = delay_ns;
            epoch_start_ = now;
        }
        if (now - epoch_start_ > seconds(5)) {
            least_before_ = least_;
            least_ = delay_ns;
            epoch_start_ = now;
        }
        if (static_cast<std::int32_t>(delay_ns - least_) < 0) least_ = delay_ns;
        const std::int32_t above_now = static_cast<std::int32_t>(delay_ns - least_);
        const std::int32_t above_before = static_cast<std::int32_t>(delay_ns - least_before_);
        latest_ = Duration{std::max({above_now, above_before, 0})};
        return latest_;
    }
    Duration latest() const { return latest_; }

private:
    bool started_ = false;
    std::uint32_t least_ = 0, least_before_ = 0;
    Time epoch_start_{0};
    Duration latest_{0};
};

}  // namespace dlcp

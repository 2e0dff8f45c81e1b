// One-way delays of arriving packets, by clocks that are not synchronised.
//
// Only differences between delays mean anything: the least of the last seconds stands for an empty path. The receiver
// subtracts it, since it alone sees the control packets that overtake a standing queue; a sender that subtracted the
// least of what data met would take the queue it arrived behind for the empty path, and get more than its share.
// Times are 32-bit nanoseconds as in the header; differences are right within +-2.1 s.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/units.hpp"

namespace dlcp {

// The receiver's view of one peer's packets: how long data queued lately, for acknowledgements, and how long the slowest
// took, which tells how long a straggler may take. Control packets count for the least delay: they overtake the queue.
class ArrivalDelays {
public:
    void sample_control(Time now, std::uint32_t delay_ns) {
        if (!started_) start(now, delay_ns);
        update_least(now, static_cast<std::int32_t>(delay_ns - reference_));
    }
    void sample_data(Time now, std::uint32_t delay_ns, Duration epoch) {
        if (!started_) start(now, delay_ns);
        const auto relative = static_cast<std::int32_t>(delay_ns - reference_);
        update_least(now, relative);
        if (count_ < samples_.size()) samples_[count_++] = relative;
        if (now - epoch_start_ > epoch) {
            most_before_ = most_;
            low_before_ = low_;
            most_ = low_ = relative;
            epoch_start_ = now;
        }
        most_ = std::max(most_, relative);
        low_ = std::min(low_, relative);
    }
    // Median queueing delay of the data since the last call, plus 1 ns; 0 if there was none.
    std::uint32_t take_median() {
        if (count_ == 0) return 0;
        const auto middle = samples_.begin() + static_cast<std::ptrdiff_t>(count_ / 2);
        std::nth_element(samples_.begin(), middle, samples_.begin() + static_cast<std::ptrdiff_t>(count_));
        count_ = 0;
        return static_cast<std::uint32_t>(std::max(*middle - std::min(least_, least_before_), 0)) + 1;
    }
    // How much longer than a packet with this delay the slowest data of the last two epochs took, and a quarter of the
    // data's spread as a margin.
    Duration straggler_margin(std::uint32_t delay_ns) const {
        if (!started_) return {0};
        const std::int64_t relative = static_cast<std::int32_t>(delay_ns - reference_);
        const std::int64_t most = std::max(most_, most_before_);
        const std::int64_t spread = most - std::min(low_, low_before_);
        return {std::max<std::int64_t>(most - relative, 0) + spread / 4};
    }

private:
    // How long the least delay is remembered, at most twice: clocks drift apart by some 50 us/s.
    static constexpr Duration least_epoch = seconds(5);

    void start(Time now, std::uint32_t delay_ns) {
        started_ = true;
        reference_ = delay_ns;
        epoch_start_ = least_start_ = now;
    }
    void update_least(Time now, std::int32_t relative) {
        if (now - least_start_ > least_epoch) {
            least_before_ = least_;
            least_ = relative;
            least_start_ = now;
        }
        least_ = std::min(least_, relative);
    }

    bool started_ = false;
    std::uint32_t reference_ = 0;  // the first delay; all others are kept relative to it
    std::array<std::int32_t, 32> samples_{};
    std::size_t count_ = 0;
    std::int32_t most_ = 0, most_before_ = 0;    // of data, present and previous epoch
    std::int32_t low_ = 0, low_before_ = 0;
    std::int32_t least_ = 0, least_before_ = 0;  // of anything, present and previous least epoch
    Time epoch_start_{0};
    Time least_start_{0};
};

}  // namespace dlcp

// One-way delays of arriving packets, by clocks that are not synchronised.
//
// Only differences between delays mean anything: the smallest delay of the last seconds stands for an empty path. The
// receiver subtracts it, because only the receiver sees the control packets that overtake a standing queue. A sender
// that subtracted the smallest delay of its data would take the queue before it for an empty path, and get more than
// its share. Times are 32-bit nanoseconds as in the header; differences are correct within +-2.1 s.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "engine/prefetch.hpp"
#include "engine/units.hpp"

namespace dlcp {

// The receiver's view of one peer's packets: how long data queued recently (for acknowledgements), and how much longer
// the slowest lane takes than the others (how late a straggler may still come). Control packets count only towards the
// smallest delay: they overtake the queue.
class ArrivalDelays {
public:
    // The peer numbers its paths freely; if it has more than a sender may have, several share a lane.
    static constexpr std::size_t most_paths = 64;
    static std::size_t lane(std::uint8_t traffic_class, std::uint16_t path) {
        return traffic_class * most_paths + path % most_paths;
    }
    void sample_control(Time now, std::uint32_t delay_ns) {
        if (!started_) start(now, delay_ns);
        update_least(now, relative_to_reference(delay_ns));
    }
    // Returns how long the packet queued.
    Duration sample_data(Time now, std::size_t lane, std::uint32_t delay_ns) {
        if (!started_) start(now, delay_ns);
        update_least(now, relative_to_reference(delay_ns));
        const std::int64_t relative = relative_to_reference(delay_ns);  // after: the reference may have moved
        if (count_ < samples_.size()) samples_[count_++] = relative;
        if (lane >= lanes_.size()) lanes_.resize(lane + 1);
        Lane& own = lanes_[lane];
        if (own.at != never) jitter_ += (std::abs(relative - own.latest) - jitter_) / 16;
        own.at = now;
        own.latest = static_cast<std::int32_t>(relative);
        return {relative - std::min(least_, least_before_)};
    }
    // Of two packets that left one after the other over one path, this is the second to arrive: whether it left first.
    std::optional<bool> overtaken(std::size_t lane, std::uint64_t number) {
        const auto now = static_cast<std::uint32_t>(number);
        const std::uint32_t before = std::exchange(lanes_[lane].number, now);
        if (now != before + 1 && now != before - 1) return std::nullopt;
        return now == before - 1;
    }
    // Median queueing delay of the data since the last call, plus 1 ns; 0 if there was none.
    std::uint32_t take_median() {
        if (count_ == 0) return 0;
        const auto middle = samples_.begin() + static_cast<std::ptrdiff_t>(count_ / 2);
        std::nth_element(samples_.begin(), middle, samples_.begin() + static_cast<std::ptrdiff_t>(count_));
        count_ = 0;
        const std::int64_t above = *middle - std::min(least_, least_before_);
        return static_cast<std::uint32_t>(std::clamp<std::int64_t>(above, 0, UINT32_MAX - 1)) + 1;
    }
    // A packet had this delay. How long after it a packet that was sent no later may still arrive, in the `count` lanes
    // from `first` on: the extra delay of the slowest of these lanes when last seen (within `memory`), plus a quarter
    // of their spread and twice the jitter as a margin. Packets of a lane do not overtake each other, so an earlier
    // queue does not count.
    Duration straggler_margin(Time now, std::uint32_t delay_ns, std::size_t first, std::size_t count,
                              Duration memory) const {
        const std::int64_t relative = relative_to_reference(delay_ns);
        std::int64_t most = relative;
        std::int64_t low = relative;
        for (std::size_t i = first; i < std::min(first + count, lanes_.size()); ++i) {
            const Lane& lane = lanes_[i];
            if (lane.at == never || now - lane.at > memory) continue;
            most = std::max<std::int64_t>(most, lane.latest);
            low = std::min<std::int64_t>(low, lane.latest);
        }
        return {most - relative + (most - low) / 4 + 2 * jitter_};
    }

    // foresight.cpp
    const void* behind_samples() const { return &samples_ + 1; }
    void prefetch(std::size_t lane) const {
        dlcp::prefetch(&samples_[count_ % samples_.size()]);
        dlcp::prefetch(lanes_.data() + lane);
    }

private:
    // Small: each packet of data touches that of its lane, and there is one per path.
    static constexpr Time never{INT64_MIN};
    struct Lane {
        Time at = never;
        std::int32_t latest = 0;
        std::uint32_t number = 0;  // of the last packet; its low bits
    };
    // How long the smallest delay is remembered; at most twice this. Clocks drift apart by some 50 us/s.
    static constexpr Duration least_epoch = seconds(5);

    void start(Time now, std::uint32_t delay_ns) {
        started_ = true;
        reference_ = delay_ns;
        least_start_ = now;
    }
    std::int64_t relative_to_reference(std::uint32_t delay_ns) const {
        return static_cast<std::int32_t>(delay_ns - reference_);
    }
    void update_least(Time now, std::int64_t relative) {
        if (now - least_start_ > least_epoch) {
            least_before_ = least_;
            least_ = relative;
            least_start_ = now;
            move_reference(std::min(least_before_, least_));
        } else {
            least_ = std::min(least_, relative);
        }
    }
    // Keeps the reference near the smallest delay. Otherwise drifting clocks would exceed 32 bits in half a day.
    void move_reference(std::int64_t by) {
        reference_ += static_cast<std::uint32_t>(by);
        least_ -= by;
        least_before_ -= by;
        for (std::size_t i = 0; i < count_; ++i) samples_[i] -= by;
        for (Lane& lane : lanes_) lane.latest -= static_cast<std::int32_t>(by);
    }

    std::array<std::int64_t, 32> samples_{};
    std::size_t count_ = 0;
    bool started_ = false;
    std::uint32_t reference_ = 0;  // all other delays are kept relative to it
    std::vector<Lane> lanes_;
    std::int64_t jitter_ = 0;                    // mean change of a lane's delay from one packet to the next
    std::int64_t least_ = 0, least_before_ = 0;  // of any packet, in the current and the previous epoch
    Time least_start_{0};
};

}  // namespace dlcp

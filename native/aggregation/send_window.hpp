// How many blocks a worker has in flight, and how long it waits for one before it sends it again.
//
// The window doubles per round trip until a block has to be sent again, then grows by one per round trip, and is halved,
// once per wait, when that happens (AIMD: RFC 5681). The wait follows RFC 6298 from blocks that were sent once; a result
// waits for the slowest worker, so the wait covers stragglers too. ATP's hosts do the like on marks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dlcp::aggregation {

class SendWindow {
public:
    SendWindow(std::uint32_t most_blocks, std::int64_t least_wait_ns)
        : most_(most_blocks),
          least_wait_ns_(least_wait_ns),
          blocks_(std::min(first_window, most_)),
          threshold_(most_) {}

    bool has_room(std::uint32_t in_flight) const { return in_flight < static_cast<std::uint32_t>(blocks_); }
    std::int64_t wait_ns() const {
        if (mean_ns_ < 0) return least_wait_ns_;
        return std::clamp(mean_ns_ + 4 * deviation_ns_, least_wait_ns_, most_wait_ns);
    }

    // A block that was sent once is done.
    void handle_result(std::int64_t took_ns) {
        if (mean_ns_ < 0) {
            mean_ns_ = took_ns;
            deviation_ns_ = took_ns / 2;
        } else {
            const std::int64_t off = took_ns < mean_ns_ ? mean_ns_ - took_ns : took_ns - mean_ns_;
            deviation_ns_ += (off - deviation_ns_) / 4;
            mean_ns_ += (took_ns - mean_ns_) / 8;
        }
        blocks_ = std::min(blocks_ + (blocks_ < threshold_ ? 1.0 : 1.0 / blocks_), most_);
    }

    // A block has to be sent again.
    void handle_wait_over(std::int64_t now_ns) {
        if (now_ns - halved_ns_ < wait_ns()) return;
        halved_ns_ = now_ns;
        blocks_ = std::max(blocks_ / 2, std::min(least_window, most_));
        threshold_ = blocks_;
    }

private:
    static constexpr double first_window = 8;
    static constexpr double least_window = 2;
    static constexpr std::int64_t most_wait_ns = 1'000'000'000;

    double most_;
    std::int64_t least_wait_ns_;
    double blocks_;
    double threshold_;
    std::int64_t mean_ns_ = -1;
    std::int64_t deviation_ns_ = 0;
    std::int64_t halved_ns_ = -most_wait_ns;
};

}  // namespace dlcp::aggregation

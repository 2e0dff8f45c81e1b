#include "engine/run_length.hpp"

namespace dlcp {

void RunLength::end_round(bool sprayed, std::uint64_t packets_needed) {
    if (sprayed) {
        packets_ = most_;
    } else if (queue_ && limited_) {
        const auto needed = static_cast<std::uint32_t>(std::min<std::uint64_t>(packets_needed, most_));
        const std::uint32_t shorter = std::max(needed, least_);
        if (packets_ > shorter) quiet_rounds_needed_ = std::min(quiet_rounds_needed_ * 2, quiet_rounds_most);
        quiet_rounds_ = 0;
        packets_ = shorter;
    } else if (acked_ >= packets_ && ++quiet_rounds_ > quiet_rounds_needed_) {
        // A round that held no whole run says nothing about longer ones.
        packets_ = std::min(packets_ * 2, most_);
        if (packets_ == most_) quiet_rounds_needed_ = std::max(quiet_rounds_needed_ / 2, quiet_rounds_least);
    }
    acked_ = 0;
    queue_ = limited_ = false;
}

}  // namespace dlcp

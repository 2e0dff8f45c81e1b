// Spreads packets over time: a token bucket that counts in time, not tokens.
//
// `due` is when everything released so far would have been sent at the pacing rate. A packet may leave while `due` is
// less than one allowance ahead of now. So bursts of one allowance stay whole (segmentation offload needs them), and
// the long-run rate is exact. What is due is kept in bytes: a change of rate changes the time it takes.
#pragma once

#include <algorithm>

#include "engine/units.hpp"

namespace dlcp {

class Pacer {
public:
    void reset() { due_ = Time{INT64_MIN / 2}; }
    void set(Time now, Rate rate, Bytes burst, Duration granularity) {
        if (rate != rate_ && due_ > now && rate.value_bps != 0) {
            __extension__ using u128 = unsigned __int128;
            const auto ahead = static_cast<std::uint64_t>((due_ - now).value);
            due_ = now + nanoseconds(static_cast<std::int64_t>(
                             std::min<u128>(u128{ahead} * rate_.value_bps / rate.value_bps, seconds(3600).value)));
        }
        rate_ = rate;
        allowance_ = time_to_send(burst, rate) + granularity;
    }
    // Bytes that may leave now; a rate of zero does not limit.
    std::uint64_t allowed_bytes(Time now) const {
        if (rate_.value_bps == 0) return UINT64_MAX;
        const Duration room = now + allowance_ - std::max(due_, now);
        if (room.value <= 0) return 0;
        return multiply_divide(static_cast<std::uint64_t>(room.value), rate_.value_bps, 8'000'000'000ULL);
    }
    void on_sent(Time now, Bytes bytes) {
        if (rate_.value_bps == 0) return;
        due_ = std::max(due_, now) + time_to_send(bytes, rate_);
    }
    // When half an allowance is free again: waking for every packet would cost more than it smooths.
    Time next(Time now) const { return std::max(now + nanoseconds(1), due_ - allowance_ / 2); }

private:
    Rate rate_{0};
    Duration allowance_{0};
    Time due_{INT64_MIN / 2};
};

}  // namespace dlcp

// The rate of this host's line, learnt from what arrives.
//
// What a card says of itself is often not the line's rate: virtual machines are limited below it, and virtual cards name
// none, or any. Packets that queue before a line leave it one behind the other, so what it carries is the most that
// arrives in a while (a train of packets; the largest of a period stands, as in BBR, ACM Queue 14(5), 2016).
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/units.hpp"

namespace dlcp {

class ArrivalRate {
public:
    // So much has come, at this time by the driver's clock.
    void arrived(Time at, std::uint64_t bytes) {
        if (at > last_) {
            const bool whole = bytes_ >= least_bytes && last_ - start_ >= least_length;
            if (whole) note(rate_of(Bytes{bytes_}, last_ - start_));
            if (whole || at - last_ > pause) {
                start_ = at;
                bytes_ = 0;
            }
            last_ = at;
        }
        // What came at the start left the line before it.
        if (last_ != start_) bytes_ += bytes;
    }
    // The most of this period and the one before it; 0: nothing has been measured.
    Rate rate() const { return std::max(most_, before_); }

private:
    // A train. A kernel stamps runs of up to 64 KB once and lets as much through in a burst; packets that stood in a
    // queue elsewhere come together for some round trips.
    static constexpr std::uint64_t least_bytes = 512 << 10;
    static constexpr Duration least_length = milliseconds(1);
    static constexpr Duration pause = milliseconds(10);
    static constexpr Duration period = seconds(10);

    void note(Rate rate) {
        if (last_ >= period_end_) {
            before_ = last_ >= period_end_ + period ? Rate{0} : most_;
            most_ = Rate{0};
            period_end_ = last_ + period;
        }
        most_ = std::max(most_, rate);
    }

    Time start_{INT64_MIN / 2};
    Time last_{INT64_MIN / 2};
    std::uint64_t bytes_ = 0;
    Time period_end_{INT64_MIN / 2};
    Rate most_{0};
    Rate before_{0};
};

}  // namespace dlcp

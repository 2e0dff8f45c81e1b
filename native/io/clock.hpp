// The clock of drivers in real time: CLOCK_MONOTONIC in nanoseconds. And its offset from the wall clock, with which
// the kernel stamps arriving packets.
#pragma once

#include <time.h>

#include <cstdint>

namespace dlcp {

inline std::int64_t to_ns(const timespec& time) {
    return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

inline std::int64_t read_clock_ns(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return to_ns(now);
}

inline std::int64_t monotonic_ns() { return read_clock_ns(CLOCK_MONOTONIC); }

struct ClockPair {
    std::int64_t monotonic_ns;
    std::int64_t wall_ns;
};

// Both clocks at one moment, to within 20 us unless this thread is interrupted four times in a row.
inline ClockPair read_clock_pair() {
    for (int attempt = 0;; ++attempt) {
        const std::int64_t before_ns = monotonic_ns();
        const std::int64_t wall_ns = read_clock_ns(CLOCK_REALTIME);
        const std::int64_t after_ns = monotonic_ns();
        if (after_ns - before_ns <= 20'000 || attempt == 3) return {after_ns, wall_ns};
    }
}

}  // namespace dlcp

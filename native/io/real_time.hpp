// Timeouts of callers: in real time, also where a driver's clock is virtual.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "engine/units.hpp"

namespace dlcp {

using RealClock = std::chrono::steady_clock;
using RealTime = RealClock::time_point;
inline constexpr RealTime real_never = RealTime::max();

// When `timeout` will have passed; negative: never.
inline RealTime real_deadline(Duration timeout) {
    if (timeout.value < 0) return real_never;
    const RealTime now = RealClock::now();
    const auto room = std::chrono::duration_cast<std::chrono::nanoseconds>(real_never - now).count();
    return timeout.value >= room ? real_never : now + std::chrono::nanoseconds(timeout.value);
}

inline bool has_passed(RealTime until) { return until != real_never && RealClock::now() >= until; }

inline void sleep_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, RealTime until) {
    if (until == real_never) {
        condition.wait(lock);
    } else {
        condition.wait_until(lock, until);
    }
}

}  // namespace dlcp

// The clocks: monotonic for the switch, wall for what leaves it (captures) and for what the kernel stamps.
#pragma once

#include <ctime>

#include "softswitch/time.hpp"

namespace dlcp::softswitch {

inline Time read_clock(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return std::chrono::seconds(t.tv_sec) + Time(t.tv_nsec);
}

inline Time monotonic_now() { return read_clock(CLOCK_MONOTONIC); }

// Added to a monotonic time, gives the wall clock's. Changes when the wall clock is set.
inline Time wall_offset() { return read_clock(CLOCK_REALTIME) - monotonic_now(); }

}  // namespace dlcp::softswitch

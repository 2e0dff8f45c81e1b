// The clocks that benchmark programs read.
#pragma once

#include <time.h>

namespace dlcp::bench {

inline double read_clock_s(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
inline double wall_s() { return read_clock_s(CLOCK_MONOTONIC); }
// Processor time: on a shared machine the only time that belongs to the program measured.
inline double thread_cpu_s() { return read_clock_s(CLOCK_THREAD_CPUTIME_ID); }
inline double process_cpu_s() { return read_clock_s(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace dlcp::bench

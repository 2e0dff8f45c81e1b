// Runs of values in a buffer, thousands of a packet each: copied one after the other, and added where they belong.
//
// What a lossy collective abandoned lies so: kept after it, added back before the next. Portable code alone: memory, not
// arithmetic, is the limit. Every run lies within its memory, and the runs that are written are apart.
#pragma once

#include <cstdint>
#include <span>

namespace dlcp {

struct ValueRuns {
    std::span<const std::int64_t> begin;
    std::span<const std::int64_t> count;
};

// `out` takes the runs of `source` one after the other. T: float, double.
template <class T>
void gather_runs(const T* source, const ValueRuns& runs, T* out);

// target[run i] += factor * source[as many from at[i] on], rounded after each of the two operations. T: float, double.
template <class T>
void add_runs(T* target, const ValueRuns& runs, const T* source, std::span<const std::int64_t> at, T factor);

}  // namespace dlcp

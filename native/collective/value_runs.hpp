// Runs of values in a buffer, thousands of a packet each: copied one after the other, and added where they belong.
//
// What a lossy collective abandoned lies so: kept after it, added back before the next. Portable code alone: memory, not
// arithmetic, is the limit. Every run lies within its memory, and the runs that are written are apart.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace dlcp {

struct ValueRuns {
    std::span<const std::int64_t> begin;
    std::span<const std::int64_t> count;
};

namespace detail {

// The processor fetches ahead within a run by itself, but not where the next one begins.
inline constexpr std::size_t line_bytes = 64;
inline constexpr std::size_t ahead_bytes = 1024;

inline void fetch_run(const void* memory, std::size_t bytes) {
    for (std::size_t at = 0; at < std::min(bytes, ahead_bytes); at += line_bytes)
        __builtin_prefetch(static_cast<const std::byte*>(memory) + at);
}

}  // namespace detail

// `out` takes the runs of `source` one after the other.
template <class T>
void gather_runs(const T* source, const ValueRuns& runs, T* out) {
    for (std::size_t i = 0; i < runs.begin.size(); ++i) {
        if (i + 1 < runs.begin.size())
            detail::fetch_run(source + runs.begin[i + 1], sizeof(T) * static_cast<std::size_t>(runs.count[i + 1]));
        const auto count = static_cast<std::size_t>(runs.count[i]);
        std::memcpy(out, source + runs.begin[i], count * sizeof(T));
        out += count;
    }
}

// target[run i] += factor * source[as many from at[i] on].
template <class T>
void add_runs(T* target, const ValueRuns& runs, const T* source, std::span<const std::int64_t> at, T factor) {
    for (std::size_t i = 0; i < runs.begin.size(); ++i) {
        if (i + 1 < runs.begin.size())
            detail::fetch_run(target + runs.begin[i + 1], sizeof(T) * static_cast<std::size_t>(runs.count[i + 1]));
        T* const to = target + runs.begin[i];
        const T* const from = source + at[i];
        for (std::int64_t element = 0; element < runs.count[i]; ++element) to[element] += factor * from[element];
    }
}

}  // namespace dlcp

#include "collective/value_runs.hpp"

#include <algorithm>
#include <cstddef>

namespace dlcp {
namespace {

// The processor fetches ahead within a run by itself, but not where the next one begins.
constexpr std::size_t line_bytes = 64;
constexpr std::size_t ahead_bytes = 1024;

template <class T>
void fetch_run(const T* memory, const ValueRuns& runs, std::size_t i) {
    if (i >= runs.begin.size()) return;
    const auto* const begin = reinterpret_cast<const std::byte*>(memory + runs.begin[i]);
    const std::size_t bytes = static_cast<std::size_t>(runs.count[i]) * sizeof(T);
    for (std::size_t at = 0; at < std::min(bytes, ahead_bytes); at += line_bytes) __builtin_prefetch(begin + at);
}

}  // namespace

template <class T>
void gather_runs(const T* source, const ValueRuns& runs, T* out) {
    for (std::size_t i = 0; i < runs.begin.size(); ++i) {
        fetch_run(source, runs, i + 1);
        out = std::copy_n(source + runs.begin[i], runs.count[i], out);
    }
}

template <class T>
void add_runs(T* target, const ValueRuns& runs, const T* source, std::span<const std::int64_t> at, T factor) {
    for (std::size_t i = 0; i < runs.begin.size(); ++i) {
        fetch_run(target, runs, i + 1);
        T* const to = target + runs.begin[i];
        const T* const from = source + at[i];
        for (std::int64_t element = 0; element < runs.count[i]; ++element) to[element] += factor * from[element];
    }
}

template void gather_runs(const float*, const ValueRuns&, float*);
template void gather_runs(const double*, const ValueRuns&, double*);
template void add_runs(float*, const ValueRuns&, const float*, std::span<const std::int64_t>, float);
template void add_runs(double*, const ValueRuns&, const double*, std::span<const std::int64_t>, double);

}  // namespace dlcp

// Asks for memory ahead of its use. It changes nothing but how long the use takes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlcp {

inline constexpr std::size_t cache_line_bytes = 64;

// Forced inline: GCC considers a call that only prefetches to be without effect, and drops it.
[[gnu::always_inline]] inline void prefetch(const void* place) { __builtin_prefetch(place); }

// The lines of `object`, which begins with a line, from member `first` until `end`: the lines are known when this is
// compiled, and cost an instruction each.
template <class Object>
[[gnu::always_inline]] inline void prefetch_lines(const Object* object, const void* first, const void* end) {
    static_assert(alignof(Object) >= cache_line_bytes);
    const char* const base = reinterpret_cast<const char*>(object);
    const auto stop = static_cast<std::size_t>(static_cast<const char*>(end) - base);
    for (std::size_t at = static_cast<std::size_t>(static_cast<const char*>(first) - base) / cache_line_bytes *
                          cache_line_bytes;
         at < stop; at += cache_line_bytes)
        __builtin_prefetch(base + at);
}

}  // namespace dlcp

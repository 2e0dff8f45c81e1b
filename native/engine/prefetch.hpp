// Asks for memory ahead of its use. It changes nothing but how long the use takes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlcp {

inline constexpr std::size_t cache_line_bytes = 64;

// Forced inline: GCC considers a call that only prefetches to be without effect, and drops it.
[[gnu::always_inline]] inline void prefetch(const void* place) { __builtin_prefetch(place); }

// A payload that is about to be copied out of the caller's memory, or into it (`to_write`): that memory is in no cache
// near the processor, and what the processor fetches ahead by itself begins anew with each packet. With both an
// all-reduce of 64 MB by two ranks takes 0.80 to 0.86 of the time, and 0.81 to 0.87 of the processor's, between two
// containers; 0.90 and 0.91 where receivers merge (a Xeon of 2024, pages of 4 KiB). Longer payloads the processor fetches
// well enough by itself: with 8,896 bytes this cost 2 %.
template <bool to_write>
[[gnu::always_inline]] inline void prefetch_payload(const std::uint8_t* payload, std::size_t bytes) {
    constexpr std::size_t longest = 4096;
    constexpr int locality = to_write ? 3 : 2;  // 2: the second cache, since a whole run is sent at a time
    if (bytes > longest) return;
    for (std::size_t at = 0; at < bytes; at += cache_line_bytes)
        __builtin_prefetch(payload + at, to_write, locality);
}

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

// Huge pages under the buffers of collectives.
//
// The kernel backs a large tensor with pages of 4 KiB unless somebody asks. Where a rank reads and adds such a tensor the
// processor then waits for page tables, and its prefetchers stop at each page. A buffer that collectives use again and
// again, as DDP's do, is worth being moved into huge pages once. Its addresses and contents stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "collective/partition.hpp"

namespace dlcp {

class HugePages {
public:
    // madvise(2): 0, or -1 and errno.
    using Advise = int (*)(void* start, std::size_t bytes, int advice);

    // `enabled`: false: nothing is ever asked for.
    HugePages(bool enabled, Advise advise) : enabled_(enabled), advise_(advise) {}

    // A collective is about to use this memory, whose chunks may follow each other. Asks for huge pages once the memory
    // was there `uses_before` times; that blocks for some milliseconds. Any thread may call it.
    void note(std::span<const ChunkMemory> memory);

    static constexpr std::size_t page_bytes = std::size_t{2} << 20;
    static constexpr std::size_t bytes_min = 2 * page_bytes;  // at least one whole huge page lies within
    static constexpr std::uint32_t uses_before = 2;

private:
    struct Range {
        std::uintptr_t start = 0, end = 0;
        std::uint32_t uses = 0;
    };
    static constexpr std::size_t ranges_max = 64;

    void note(Range range);
    void ask(const Range& range);

    bool enabled_;
    Advise advise_;
    std::mutex mutex_;           // guards all below
    std::vector<Range> ranges_;  // those noted last, in no order
    std::size_t oldest_ = 0;     // the one whose place a new one takes
};

// Whether the kernel gives huge pages to those that ask: it refuses them to all if its administrator said `never`.
bool kernel_gives_huge_pages();

}  // namespace dlcp

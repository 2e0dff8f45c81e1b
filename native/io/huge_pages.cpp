// When a buffer is moved into huge pages, and how the kernel is asked.
#include "io/huge_pages.hpp"

#include <errno.h>
#include <sys/mman.h>

#include <fstream>
#include <string>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace dlcp {

void HugePages::note(std::span<const ChunkMemory> memory) {
    if (!enabled_) return;
    Range range;
    for (const ChunkMemory& chunk : memory) {
        if (chunk.data == nullptr || chunk.bytes == 0) continue;
        const auto start = reinterpret_cast<std::uintptr_t>(chunk.data);
        if (start != range.end) {
            note(range);
            range = {.start = start};
        }
        range.end = start + chunk.bytes;
    }
    note(range);
}

void HugePages::note(Range range) {
    if (range.end - range.start < bytes_min) return;
    const std::lock_guard lock(mutex_);
    for (Range& known : ranges_) {
        if (known.start != range.start || known.end != range.end) continue;
        if (known.uses <= uses_before && known.uses++ == uses_before) ask(known);
        return;
    }
    range.uses = 1;
    if (ranges_.size() < ranges_max) {
        ranges_.push_back(range);
    } else {
        ranges_[oldest_] = range;
        oldest_ = (oldest_ + 1) % ranges_max;
    }
}

// Refused, as for memory of files or of a GPU's driver: ordinary pages, slower only.
void HugePages::ask(const Range& range) {
    const std::uintptr_t start = (range.start + page_bytes - 1) & ~(page_bytes - 1);
    const std::size_t bytes = (range.end & ~(page_bytes - 1)) - start;
    void* const from = reinterpret_cast<void*>(start);
    // A kernel before 6.1 does not know it: its own thread moves the memory, some time later.
    if (advise_(from, bytes, MADV_COLLAPSE) != 0 && errno == EINVAL) advise_(from, bytes, MADV_HUGEPAGE);
}

bool kernel_gives_huge_pages() {
    std::string line;
    std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), line);
    return !line.empty() && line.find("[never]") == std::string::npos;
}

}  // namespace dlcp

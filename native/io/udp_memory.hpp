// Memory for packet buffers: zeroed pages, huge ones where the system grants them, so that a burst of headers or
// a received super-packet costs few TLB entries.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace dlcp::udp {

class PacketMemory {
public:
    // Slots start on cache lines that are an odd number of lines apart: any power of two lines apart, all
    // headers would share a few cache sets and evict each other.
    static constexpr std::size_t stride_for(std::size_t slot_bytes) {
        const std::size_t lines = (slot_bytes + cache_line_bytes - 1) / cache_line_bytes;
        return (lines | 1) * cache_line_bytes;
    }

    PacketMemory(std::size_t slots, std::size_t slot_bytes)
        : stride_bytes_(stride_for(slot_bytes)),
          mapped_bytes_((slots * stride_bytes_ + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes) {
        // One huge page more than needed, so that an aligned start exists inside; untouched pages cost nothing.
        void* mapped = mmap(nullptr, mapped_bytes_ + huge_page_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) throw std::bad_alloc();
        mapped_ = static_cast<std::uint8_t*>(mapped);
        const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(mapped_);
        aligned_ = mapped_ + ((huge_page_bytes - start % huge_page_bytes) % huge_page_bytes);
        madvise(aligned_, mapped_bytes_, MADV_HUGEPAGE);  // refused: ordinary pages, slower only
    }
    ~PacketMemory() { munmap(mapped_, mapped_bytes_ + huge_page_bytes); }
    PacketMemory(const PacketMemory&) = delete;
    PacketMemory& operator=(const PacketMemory&) = delete;

    std::uint8_t* slot(std::size_t index) const { return aligned_ + index * stride_bytes_; }

private:
    static constexpr std::size_t cache_line_bytes = 64;
    static constexpr std::size_t huge_page_bytes = 2 * 1024 * 1024;

    std::size_t stride_bytes_;
    std::size_t mapped_bytes_;
    std::uint8_t* mapped_ = nullptr;
    std::uint8_t* aligned_ = nullptr;
};

}  // namespace dlcp::udp

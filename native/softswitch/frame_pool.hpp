// The memory of waiting frames: a fixed number of slots of equal size, allocated once.
//
// A slot belongs to one queue or to the departures; the pool does not know which. It hands out the slot returned last,
// whose memory the cache still holds. When all are in use, `take` returns none.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace dlcp::softswitch {

using Slot = std::uint32_t;
inline constexpr Slot no_slot = UINT32_MAX;

class FramePool {
public:
    struct Header {
        Slot next = no_slot;      // in a queue, from head to tail
        std::uint32_t bytes = 0;  // of the frame
        std::uint8_t traffic_class = 0;
    };

    FramePool(std::uint32_t frames, std::uint32_t frame_bytes)
        : frame_bytes_((frame_bytes + 63) / 64 * 64),
          // Not cleared: a page that is never used is never there.
          memory_(new std::uint8_t[std::size_t{frames} * frame_bytes_]),
          headers_(frames) {
        free_.reserve(frames);
        for (Slot slot = frames; slot-- > 0;) free_.push_back(slot);
    }

    Slot take() {
        if (free_.empty()) return no_slot;
        const Slot slot = free_.back();
        free_.pop_back();
        return slot;
    }
    void give(Slot slot) { free_.push_back(slot); }

    Header& operator[](Slot slot) { return headers_[slot]; }
    std::uint8_t* bytes(Slot slot) { return memory_.get() + std::size_t{slot} * frame_bytes_; }
    std::uint32_t frame_bytes() const { return frame_bytes_; }
    std::uint32_t used() const { return static_cast<std::uint32_t>(headers_.size() - free_.size()); }

private:
    std::uint32_t frame_bytes_;
    std::unique_ptr<std::uint8_t[]> memory_;
    std::vector<Header> headers_;
    std::vector<Slot> free_;
};

}  // namespace dlcp::softswitch

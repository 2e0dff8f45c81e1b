// A ring of packets in memory that two processes share: one writes, one reads, in order, without system calls.
//
//   control   tail, base │ head │ armed        a cache line each, so that the sides do not disturb each other
//   data      …│prefix│packet, padded to a cache line│prefix│packet …
//
// Positions count bytes since the ring was made and never go back: [head, tail) is what has been written and not yet
// given back. A packet starts on a cache line and its 8-byte prefix ends the line before; a packet that does not fit
// before the end of the data starts again at its beginning, behind a prefix that says so. A writer that finds the ring
// empty starts at the beginning of the data again (base), so that a ring in light use stays in a core's cache and
// touches one page.
//
// Sleeping: the reader sets `armed` and looks at the tail again; the writer moves the tail and looks at `armed`. All
// four are sequentially consistent, so at least one sees the other: the writer then clears it and rings the bell.
//
// What the other side wrote is taken once and checked before use: no value it could write makes this side touch
// memory outside the data. A ring with impossible values is `broken()` and not used again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dlcp::shm {

inline constexpr std::size_t cache_line_bytes = 64;

struct RingControl {
    alignas(cache_line_bytes) std::atomic<std::uint64_t> tail;   // writer
    std::atomic<std::uint64_t> base;                             // writer, only while the ring is empty
    alignas(cache_line_bytes) std::atomic<std::uint64_t> head;   // reader
    alignas(cache_line_bytes) std::atomic<std::uint32_t> armed;  // set by the reader, cleared by the writer
};
static_assert(sizeof(RingControl) == 3 * cache_line_bytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// One ring's place in a mapping. `data` starts on a cache line and has one more line before it.
struct RingMemory {
    RingControl* control = nullptr;
    std::uint8_t* data = nullptr;
    std::uint32_t data_bytes = 0;  // a power of two
};

// What a packet of this length takes up.
constexpr std::uint32_t slot_bytes(std::uint32_t packet_bytes) {
    constexpr std::uint32_t prefix_bytes = 8;
    return (packet_bytes + prefix_bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
}

class RingWriter {
public:
    RingWriter() = default;
    explicit RingWriter(const RingMemory& memory) : memory_(memory) {}

    // Room for a packet, until commit(); nullptr if there is none now. One longer than half the ring may have to wait
    // until the ring is empty.
    std::uint8_t* reserve(std::uint32_t packet_bytes);
    void commit(std::uint32_t packet_bytes, std::uint8_t tos);
    // Shows the reader what has been committed. True if it is asleep and must be woken now.
    bool publish();

    std::uint64_t unpublished_bytes() const { return tail_ - published_; }
    bool broken() const { return broken_; }

private:
    void refresh();
    std::uint32_t offset(std::uint64_t position) const;

    RingMemory memory_;
    std::uint64_t tail_ = 0;
    std::uint64_t published_ = 0;
    std::uint64_t head_ = 0;  // as last read
    std::uint64_t base_ = 0;
    bool broken_ = false;
};

class RingReader {
public:
    struct Packet {
        std::uint8_t* bytes = nullptr;
        std::uint32_t length = 0;
        std::uint8_t tos = 0;
    };

    RingReader() = default;
    RingReader(const RingMemory& memory, std::uint32_t packet_bytes_max)
        : memory_(memory), packet_bytes_max_(packet_bytes_max) {}

    // The next packet, which stays where it is until give_back. False: none now.
    bool next(Packet& out);
    // Packets of next(), in any order; their room is free again once none is lent.
    void give_back(std::uint32_t count);
    std::uint32_t lent() const { return lent_; }

    bool readable() const;
    // Announces that the reader is about to sleep. False: something is there, so it must not.
    bool arm();
    bool broken() const { return broken_; }

private:
    std::uint32_t offset(std::uint64_t position) const;
    bool refresh();

    RingMemory memory_;
    std::uint32_t packet_bytes_max_ = 0;
    std::uint64_t read_ = 0;   // handed out up to here
    std::uint64_t limit_ = 0;  // the tail as last read
    std::uint64_t base_ = 0;
    std::uint32_t lent_ = 0;
    bool broken_ = false;
};

}  // namespace dlcp::shm

// Reserving, publishing and reading packets in a ring, with the checks of what the other side wrote.
#include "io/shm_ring.hpp"

#include <atomic>

namespace dlcp::shm {

namespace {

// The prefix: packet length in the low 32 bits, TOS above it, and the kind above that.
constexpr std::uint32_t tos_shift = 32;
constexpr std::uint32_t kind_shift = 40;
constexpr std::uint64_t kind_packet = 1;
constexpr std::uint64_t kind_end = 2;  // nothing more before the end of the data

// It lies right before the packet. Atomic, since the other side may be at fault and write while this one reads.
std::atomic_ref<std::uint64_t> prefix_at(const RingMemory& memory, std::uint32_t offset) {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory.data + offset - sizeof(std::uint64_t)));
}

// Inside the data and on a cache line, whatever the position and the base are.
std::uint32_t offset_in(const RingMemory& memory, std::uint64_t position, std::uint64_t base) {
    const std::uint64_t mask = (memory.data_bytes - 1) & ~std::uint64_t{cache_line_bytes - 1};
    return static_cast<std::uint32_t>((position - base) & mask);
}

}  // namespace

std::uint32_t RingWriter::offset(std::uint64_t position) const { return offset_in(memory_, position, base_); }

// What the reader has given back. If that is all, the next packet starts at the beginning of the data: the reader
// looks at the base again before it reads the first packet after an empty ring.
void RingWriter::refresh() {
    const std::uint64_t head = memory_.control->head.load(std::memory_order_acquire);
    if (head < head_ || head > published_) {
        broken_ = true;
        return;
    }
    head_ = head;
    if (head_ != tail_ || offset(tail_) == 0) return;
    base_ = tail_;
    memory_.control->base.store(base_, std::memory_order_relaxed);
}

std::uint8_t* RingWriter::reserve(std::uint32_t packet_bytes) {
    const std::uint32_t need = slot_bytes(packet_bytes);
    // Once per batch, and when there seems to be no room: reading what the other core writes costs a cache miss.
    if (tail_ == published_) refresh();
    for (int attempt = 0; attempt < 2 && !broken_; ++attempt) {
        const std::uint32_t at = offset(tail_);
        const std::uint32_t to_end = memory_.data_bytes - at;
        const std::uint64_t skip = need > to_end ? to_end : 0;
        if (tail_ - head_ + skip + need <= memory_.data_bytes) {
            if (skip != 0) {
                prefix_at(memory_, at).store(kind_end << kind_shift, std::memory_order_relaxed);
                tail_ += skip;
            }
            return memory_.data + offset(tail_);
        }
        refresh();
    }
    return nullptr;
}

void RingWriter::commit(std::uint32_t packet_bytes, std::uint8_t tos) {
    prefix_at(memory_, offset(tail_))
        .store(kind_packet << kind_shift | std::uint64_t{tos} << tos_shift | packet_bytes,
               std::memory_order_relaxed);
    tail_ += slot_bytes(packet_bytes);
}

bool RingWriter::publish() {
    if (tail_ == published_) return false;
    published_ = tail_;
    memory_.control->tail.store(tail_);  // sequentially consistent, as the next line: see the top of the header
    return memory_.control->armed.load() != 0 && memory_.control->armed.exchange(0) != 0;
}

std::uint32_t RingReader::offset(std::uint64_t position) const { return offset_in(memory_, position, base_); }

// True if there is something to read. The writer moves the base only while the ring is empty, and shows it together
// with the tail.
bool RingReader::refresh() {
    const std::uint64_t tail = memory_.control->tail.load(std::memory_order_acquire);
    if (tail == limit_) return false;
    if (tail < limit_ || tail - read_ > memory_.data_bytes) {
        broken_ = true;
        return false;
    }
    limit_ = tail;
    base_ = memory_.control->base.load(std::memory_order_relaxed);
    return true;
}

bool RingReader::next(Packet& out) {
    if (broken_) return false;
    if (read_ == limit_ && !refresh()) return false;
    for (int attempt = 0; attempt < 2; ++attempt) {  // an end of the data is followed by a packet
        const std::uint32_t at = offset(read_);
        const std::uint32_t to_end = memory_.data_bytes - at;
        const std::uint64_t prefix = prefix_at(memory_, at).load(std::memory_order_relaxed);
        const std::uint64_t kind = prefix >> kind_shift;
        const std::uint32_t length = static_cast<std::uint32_t>(prefix);
        if (kind == kind_end && attempt == 0 && to_end < limit_ - read_) {
            read_ += to_end;
            continue;
        }
        if (kind != kind_packet || length > packet_bytes_max_ || slot_bytes(length) > to_end ||
            slot_bytes(length) > limit_ - read_) {
            break;
        }
        out = {memory_.data + at, length, static_cast<std::uint8_t>(prefix >> tos_shift)};
        read_ += slot_bytes(length);
        ++lent_;
        return true;
    }
    broken_ = true;
    return false;
}

void RingReader::give_back(std::uint32_t count) {
    lent_ -= count < lent_ ? count : lent_;
    if (lent_ == 0) memory_.control->head.store(read_, std::memory_order_release);
}

bool RingReader::readable() const {
    return !broken_ && (read_ != limit_ || memory_.control->tail.load(std::memory_order_acquire) != limit_);
}

bool RingReader::arm() {
    if (broken_) return true;
    if (read_ != limit_) return false;
    if (memory_.control->armed.load(std::memory_order_relaxed) == 0) memory_.control->armed.store(1);
    return memory_.control->tail.load() == limit_;
}

}  // namespace dlcp::shm

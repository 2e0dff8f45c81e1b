// One queue of an interface: an AF_XDP socket, its memory (umem) and its four rings.
//
// A chunk of the memory is a page and holds a frame. It belongs to receiving or to sending for good, and is at any time
// in one place:
//
//   receiving   fill ring ── kernel ──> receive ring ── peek ──> lent ── recycle, refill ──> fill ring
//   sending     free ── take ──> lent ── append, submit ──> send ring ── kernel ──> completion ring ── reap ──> free
//
// Rings are as long as there are chunks, so none of them can be full. Frames leave by the first queue only: one thread
// sends, and one queue keeps the order.
#pragma once

#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/xdp/options.hpp"

namespace dlcp::xdp {

// A chunk is one page. The kernel keeps XDP_PACKET_HEADROOM bytes of it and, for a program in the card's driver, what
// describes a frame. 3498 is the largest MTU that was seen to work with both ways to attach (veth, Linux 6.18).
inline constexpr std::uint32_t chunk_bytes = 4096;
inline constexpr std::uint32_t mtu_bytes_max = 3498;

struct QueueConfig {
    std::string interface;
    std::uint32_t index = 0;
    std::uint32_t receive_chunks = 0;  // powers of two
    std::uint32_t send_chunks = 0;     // 0: receives only
    ZeroCopy zero_copy = ZeroCopy::automatic;
    bool busy_poll = false;
};

class Queue {
public:
    // -EAFNOSUPPORT, -EPERM, -ENOBUFS, -EBUSY, … with what to do about it.
    static int open(const QueueConfig& config, std::unique_ptr<Queue>& out, ErrorText error);
    ~Queue();
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    int descriptor() const { return descriptor_; }
    bool zero_copy() const { return zero_copy_; }
    std::uint8_t* at(std::uint64_t address) const { return memory_ + address; }
    static std::uint64_t chunk_of(std::uint64_t address) { return address & ~std::uint64_t{chunk_bytes - 1}; }

    // ---- receiving ----

    bool has_received() { return xsk_cons_nb_avail(&receive_, 1) > 0; }
    // Up to `count` frames that have arrived: received(index + i). They are ours until recycled.
    std::uint32_t peek(std::uint32_t count, std::uint32_t& index) {
        return xsk_ring_cons__peek(&receive_, count, &index);
    }
    const xdp_desc& received(std::uint32_t index) const { return *xsk_ring_cons__rx_desc(&receive_, index); }
    void release(std::uint32_t count) { xsk_ring_cons__release(&receive_, count); }
    void recycle(std::uint64_t chunk) { recycled_.push_back(chunk); }
    // Gives what was recycled to the kernel.
    void refill();
    // With busy_poll: has the kernel look at the card.
    void poll_card();

    // ---- sending ----

    std::uint32_t free_chunks() const { return static_cast<std::uint32_t>(free_.size()); }
    std::uint64_t take() {
        const std::uint64_t chunk = free_.back();
        free_.pop_back();
        return chunk;
    }
    void give_back(std::uint64_t chunk) { free_.push_back(chunk); }
    // Puts a frame, which begins anywhere in its chunk, behind the others; submit() shows them to the kernel.
    void append(std::uint64_t address, std::uint32_t bytes);
    void submit();
    // Has the kernel send what was submitted, and takes back what it has sent. System calls are added to `calls`.
    void kick(std::uint64_t& calls);
    // Frames that the kernel has not taken yet: kick again.
    bool unsent() const { return *send_.producer != __atomic_load_n(send_.consumer, __ATOMIC_ACQUIRE); }
    void reap();
    // Frames that were appended and are not sent: their chunks have not come back.
    std::uint32_t under_way() const { return under_way_; }

    // Dropped for want of room, and all else the kernel counts.
    xdp_statistics statistics() const;

private:
    Queue() = default;
    int open_memory(const QueueConfig& config, ErrorText error);
    int open_socket(const QueueConfig& config, ErrorText error);

    std::uint8_t* memory_ = nullptr;
    std::size_t memory_bytes_ = 0;
    xsk_umem* umem_ = nullptr;
    xsk_socket* socket_ = nullptr;
    int descriptor_ = -1;
    bool zero_copy_ = false;
    bool busy_poll_ = false;
    xsk_ring_prod fill_ = {};
    xsk_ring_cons completion_ = {};
    xsk_ring_cons receive_ = {};
    xsk_ring_prod send_ = {};
    std::uint32_t appended_ = 0;  // and not submitted
    std::uint32_t under_way_ = 0;
    std::vector<std::uint64_t> free_;
    std::vector<std::uint64_t> recycled_;
};

}  // namespace dlcp::xdp

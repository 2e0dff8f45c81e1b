// The eight queues of one output port and which of them is served next: the highest class, but for runs of trimmed
// packets that a policy bounds.
//
// Invariant: the depth of a class is the sum of the frames in its queue, that of the port the sum of its classes; a
// frame that has been taken waits no longer. It owns no memory of frames and decides nothing about them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "softswitch/frame_pool.hpp"
#include "switch/policy.hpp"

namespace dlcp::softswitch {

class OutputQueues {
public:
    struct Queue {
        Slot head = no_slot;
        Slot tail = no_slot;
        std::uint32_t bytes = 0;
        std::uint32_t bytes_max = 0;
    };

    void push(FramePool& pool, Slot slot) {
        FramePool::Header& header = pool[slot];
        header.next = no_slot;
        Queue& queue = queues_[header.traffic_class];
        (queue.head == no_slot ? queue.head : pool[queue.tail].next) = slot;
        queue.tail = slot;
        queue.bytes += header.bytes;
        bytes_ += header.bytes;
        waiting_ |= 1u << header.traffic_class;
    }

    // The depths now count for the deepest; not those of a frame that goes straight through.
    void note_depths(std::size_t traffic_class) {
        Queue& queue = queues_[traffic_class];
        queue.bytes_max = std::max(queue.bytes_max, queue.bytes);
        bytes_max_ = std::max(bytes_max_, bytes_);
    }

    bool empty() const { return waiting_ == 0; }

    // What leaves next. There must be something.
    Slot pop(FramePool& pool, const switching::Policy& policy) {
        std::uint32_t c = highest(waiting_);
        if (policy.trimmed_run_packets != 0) c = bound_run(c, policy);
        Queue& queue = queues_[c];
        const Slot slot = queue.head;
        const FramePool::Header& header = pool[slot];
        queue.head = header.next;
        if (queue.head == no_slot) waiting_ &= ~(1u << c);
        queue.bytes -= header.bytes;
        bytes_ -= header.bytes;
        return slot;
    }

    std::uint32_t bytes() const { return bytes_; }
    std::uint32_t bytes_max() const { return bytes_max_; }
    const Queue& queue(std::size_t traffic_class) const { return queues_[traffic_class]; }

private:
    static std::uint32_t highest(std::uint32_t classes) {
        return 31 - static_cast<std::uint32_t>(std::countl_zero(classes));
    }

    std::uint32_t bound_run(std::uint32_t c, const switching::Policy& policy) {
        const std::uint32_t others = waiting_ & ~(1u << c);
        if (others == 0 || c != policy.trimmed_class) {
            run_ = 0;
        } else if (run_++ == policy.trimmed_run_packets) {
            run_ = 0;
            return highest(others);
        }
        return c;
    }

    std::array<Queue, switching::traffic_classes> queues_;
    std::uint32_t bytes_ = 0;
    std::uint32_t bytes_max_ = 0;
    std::uint32_t waiting_ = 0;  // bit c: class c has a frame
    std::uint32_t run_ = 0;      // trimmed packets that left in a row while others waited
};

}  // namespace dlcp::softswitch

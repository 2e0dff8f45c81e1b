// A worker of a job that a switch adds for: contributions out, results in, once each. No hub: what the switch does not
// finish, the caller does by other means, and nobody uses a part of it.
//
// A protocol engine: it opens no socket and reads no clock. begin() gives it a task, poll_packet() and handle_packet()
// are repeated until done() or the caller gives up. p4/aggregation.md has the proofs; the rules kept here are
//
// - the block at position p of the job's stream of blocks has key run · 2^32 + p and slot p modulo the slots. Keys are
//   never used twice, also by tasks that were given up;
// - no block is sent half the slots or more beyond the oldest unfinished one (SwitchML's double buffering), so a slot is
//   used again only when every worker has the result that it held;
// - a result is taken once, only of all workers, and only of the block's own shape.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aggregation/blocks.hpp"
#include "aggregation/packet.hpp"
#include "aggregation/send_window.hpp"

namespace dlcp::aggregation {

// The same at all workers, except who it is and the time.
struct WorkerSettings {
    std::uint32_t job = 0;
    std::uint16_t generation = 1;
    std::uint32_t workers = 1;  // of its switch, and this one among them
    std::uint32_t worker = 0;
    std::uint32_t ranks = 1;  // of all switches together, where there are two levels
    std::uint32_t rank = 0;
    std::uint16_t slots = 128;
    std::uint32_t lanes = lane_unit;
    std::int64_t retransmit_ns = 10'000'000;  // least wait before a block is sent again. SwitchML: 10 ms
};

struct WorkerCounters {
    std::uint64_t sent_packets = 0;
    std::uint64_t repeated_packets = 0;  // of these, sent before
    std::uint64_t results = 0;
    std::uint64_t late_results = 0;   // of blocks that were done, or of no block of the task
    std::uint64_t wrong_packets = 0;  // not of this job, or no result of it
};

class Worker {
public:
    explicit Worker(const WorkerSettings& settings);

    const WorkerSettings& settings() const { return settings_; }

    // Of all packets from now on. Between tasks.
    void set_generation(std::uint16_t generation) { settings_.generation = generation; }
    // Starts a task: blocks at positions from `position` on, in run `run`. `blocks` outlives it.
    void begin(Blocks& blocks, std::uint32_t run, std::uint64_t position, std::int64_t now_ns);
    bool done() const { return blocks_ == nullptr || oldest_ == blocks_->count(); }
    // A result was not what it had to be: the task cannot end well.
    bool failed() const { return failed_; }
    // Blocks of the task that were sent: those from here on are in no slot.
    std::uint32_t sent() const { return next_; }
    // When the last new result came, or begin() was called.
    std::int64_t progress_ns() const { return progress_ns_; }

    // Writes the next packet to be sent now, of packet_bytes(lanes); false: there is none.
    bool poll_packet(std::int64_t now_ns, std::uint8_t* packet);
    void handle_packet(std::span<const std::uint8_t> packet, std::int64_t now_ns);
    // When to poll again, if nothing comes before.
    std::int64_t next_time_ns() const { return next_due_ns_; }

    const WorkerCounters& counters() const { return counters_; }

private:
    struct InFlight {
        std::int64_t sent_ns = 0;
        std::int64_t due_ns = 0;
        std::int64_t interval_ns = 0;
        bool done = true;
        bool repeated = false;
    };

    InFlight& at(std::uint32_t block) { return window_[block % window_.size()]; }
    void write(std::uint32_t block, std::uint8_t flags, std::uint8_t* packet) const;
    bool repeat_one(std::int64_t now_ns, std::uint8_t* packet);

    WorkerSettings settings_;
    SendWindow send_window_;
    std::vector<InFlight> window_;  // of blocks oldest_ … oldest_ + half the slots
    Blocks* blocks_ = nullptr;
    std::uint32_t run_ = 0;
    std::uint64_t position_ = 0;
    std::uint32_t oldest_ = 0;  // not done
    std::uint32_t next_ = 0;    // not sent
    std::uint32_t in_flight_ = 0;
    bool failed_ = false;
    std::int64_t progress_ns_ = 0;
    std::int64_t next_due_ns_ = INT64_MAX;
    WorkerCounters counters_;
};

}  // namespace dlcp::aggregation

// One outgoing message: what has been sent, what is lost, and which block leaves next.
//
// Order of blocks: first the lost critical blocks; then the first pass, critical blocks before droppable ones; then,
// while more is missing than the budget allows, the lost droppable blocks, most important first. With a deadline or
// patience the first pass also sends its most important droppable blocks first, because the last ones may come too late
// or not be sent.
//
// Without a deadline, the receiver uses the budget once it knows that the pass is over, and the last packet says so. So
// the last droppable block leaves as a critical one: it is marked, not dropped, and repaired if it is lost. A budget
// below one block allows nothing, so all blocks are critical then.
//
// Invariant: an acknowledged block is in no lost set. The receiver decides when the message is over, not this class.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/bitmap.hpp"
#include "engine/event.hpp"
#include "engine/intrusive_list.hpp"
#include "engine/outgoing_states.hpp"
#include "engine/prefetch.hpp"
#include "engine/ring_queue.hpp"
#include "engine/units.hpp"
#include "engine/wire.hpp"

namespace dlcp {

class alignas(cache_line_bytes) OutgoingMessage {
public:
    // Set by the endpoint when the command comes; fixed afterwards.
    std::uint32_t peer = 0;
    std::uint64_t tag = 0;
    const std::uint8_t* payload = nullptr;  // nullptr: virtual (or no bytes)
    std::uint32_t message_bytes = 0;
    std::uint8_t traffic_class = 0;
    Delivery delivery = Delivery::reliable;
    std::uint16_t budget = 0;         // coded
    std::uint16_t deadline = 0;       // coded
    Time patient_until = time_never;  // from then on blocks within the budget are not sent
    Time since{0};
    std::uint16_t unit_bytes = 1;            // a block holds whole units
    bool gated = false;                      // the first pass sends only what release() has named
    std::uint32_t eager_bytes = UINT32_MAX;  // sent before any of it is acknowledged

    // Changed by the endpoint as the message lives.
    OutgoingState state;
    std::uint32_t wire_id = 0;  // 0: nothing sent yet
    CommandError error = CommandError::none;
    bool released = false;  // while cancelling: the application has released it
    std::uint32_t retransmitted_bytes = 0;
    std::uint32_t next_same_tag = UINT32_MAX;  // slot of the message that waits for this one
    // Of a message that may lose: the packet that ended the first pass, and from when on what left before it is lost,
    // since it or a later one is acknowledged; none yet.
    std::uint64_t pass_end = UINT64_MAX;
    Time settled_at = time_never;
    Link queue_link;             // in its peer's queue of its class
    std::uint8_t send_list = 0;  // of that queue: which list (send_queue.hpp)
    Link started_link;           // in its peer's list of started messages, by wire id
    Link all_link;               // in its peer's list of all messages that are not over

    bool over() const { return state == OutgoingState::State::over; }
    // The application has received the final event.
    bool told() const { return state == OutgoingState::State::over || state == OutgoingState::State::cancelling; }
    std::uint16_t block_bytes() const { return block_bytes_; }
    std::uint32_t blocks() const { return blocks_; }
    std::uint32_t critical_blocks() const { return critical_blocks_; }
    bool first_pass_over() const { return first_pass_left_ == 0; }
    std::uint32_t payload_bytes(std::uint32_t block) const {
        return block + 1 < blocks_ ? block_bytes_ : message_bytes - block * std::uint32_t{block_bytes_};
    }
    std::uint8_t importance(std::uint32_t block) const {
        return all_critical_ ? wire::importance_critical : importance_[block];
    }
    bool tolerant() const { return budget > 0 || deadline > 0; }
    bool critical(std::uint32_t block) const { return importance(block) == wire::importance_critical; }

    // Starts a new life with this block size. `importance` empty: all critical.
    void reset(std::uint16_t block_bytes, std::span<const std::uint8_t> importance);
    // Cuts the message into other blocks before anything was sent. A new block is as important as the most important
    // old block that it overlaps.
    void recut(std::uint16_t block_bytes);

    bool has_block_to_send() const {
        return lost_critical_blocks_ > 0 || first_pass_ready() > 0 || droppable_repair_due();
    }
    // Gated: these blocks may leave. Naming a block again has no effect.
    void release(std::uint32_t first, std::uint32_t count);
    // Gated, and every released block has been sent: the receiver owes nothing until more blocks are released.
    bool waits_for_release() const { return gated && first_pass_left_ > 0 && !has_block_to_send(); }
    // Bytes of payload that have not been sent or are lost; what the budget may spare is among them.
    std::uint64_t bytes_left() const {
        return (std::uint64_t{first_pass_left_} + lost_critical_blocks_ + lost_droppable_blocks_) * block_bytes_;
    }
    struct Next {
        std::uint32_t block;
        bool critical;
        bool repair;
    };
    // The block to send next, without taking it. Only if has_block_to_send().
    Next peek();
    // Takes the block that peek() named.
    void take(const Next& next);

    // Patience is over: the unsent blocks of the first pass count as sent and lost, within the budget, but for one that
    // announces the end of the pass. Not for messages with a deadline.
    void give_up_rest();

    // The receiver accepts the message: some of it is acknowledged.
    bool taken() const { return acked_blocks_ > 0; }
    void on_acked(std::uint32_t block);
    // One transmission of this block was lost. Nothing happens if it is acknowledged or counted as lost already.
    void on_lost(std::uint32_t block);

    // Applies one part of the receiver's outcome frame: the blocks that it abandoned.
    void merge_abandoned(std::uint32_t word_index, std::uint64_t word) {
        abandoned_known_ += abandoned_.merge_word(word_index, word);
    }
    std::uint32_t abandoned_known() const { return abandoned_known_; }
    const Bitmap& abandoned() const { return abandoned_; }
    bool abandons_critical() const;
    std::uint32_t budget_bytes() const { return wire::budget_bytes(message_bytes, budget); }
    std::uint32_t bytes_of(const Bitmap& blocks) const;

    // What sending the next block touches.
    void prefetch() const {
        prefetch_lines(this, &peer, &importance_);
        prefetch_lines(this, &all_critical_, &droppable_order_);
        prefetch_lines(this, &lost_critical_blocks_, &repair_order_);
    }

private:
    bool droppable_repair_due() const {
        if (lost_droppable_blocks_ == 0) return false;
        // A receiver that knows no block of the message can neither end it nor ask for its blocks: at least one must
        // get through.
        const std::uint32_t sent = blocks_ - first_pass_left_;
        const bool unheard = acked_blocks_ == 0 && lost_droppable_blocks_ + lost_critical_blocks_ == sent;
        if (first_pass_left_ > 0) return unheard && first_pass_ready() == 0;
        return unheard || lost_droppable_bytes_ > budget_bytes();
    }
    void cut(std::uint16_t block_bytes);
    std::uint32_t next_with(bool critical, std::uint32_t from) const;
    void order_droppable();
    std::uint32_t next_droppable(std::uint32_t from);
    // A droppable block that leaves now is the last of them.
    bool ends_droppable() const { return ends_critically_ && first_pass_left_ - critical_left_ == 1; }
    // Blocks of the first pass that may leave now.
    std::uint32_t first_pass_ready() const {
        const std::uint32_t ready =
            gated ? static_cast<std::uint32_t>(ready_critical_.size() + ready_droppable_.size())
                  : first_pass_left_;
        if (taken()) return ready;
        const std::uint32_t sent = blocks_ - first_pass_left_;
        const std::uint32_t eager = wire::block_count(eager_bytes, block_bytes_);
        return std::min(ready, eager > sent ? eager - sent : 0);
    }

    std::uint16_t block_bytes_ = 0;
    std::uint32_t blocks_ = 0;
    std::uint32_t critical_blocks_ = 0;
    // Per block as the application gave it, but the one that ends the pass is made critical; empty: all critical.
    std::vector<std::uint8_t> importance_;
    bool all_critical_ = true;  // it gave none, or the budget is below one block

    std::uint32_t first_pass_left_ = 0;  // blocks not sent yet
    std::uint32_t critical_left_ = 0;    // of these, those that the application calls critical
    bool ends_critically_ = false;       // the last droppable block of the first pass leaves as a critical one
    std::uint32_t cursor_ = 0;           // next block of the half of the first pass that is under way
    // With a deadline or patience, and not gated: the droppable blocks in the order of the first pass.
    std::vector<std::uint32_t> droppable_order_;
    std::uint32_t droppable_sent_ = 0;
    // Gated: released and not sent yet, in the order of release.
    RingQueue<std::uint32_t> ready_critical_;
    RingQueue<std::uint32_t> ready_droppable_;
    Bitmap released_blocks_;

    Bitmap acked_;
    Bitmap lost_critical_;
    Bitmap lost_droppable_;
    std::uint32_t lost_critical_blocks_ = 0;
    std::uint32_t lost_droppable_blocks_ = 0;
    std::uint32_t lost_droppable_bytes_ = 0;
    std::uint32_t acked_blocks_ = 0;
    std::vector<std::uint32_t> repair_order_;  // lost droppable blocks, most important last
    bool repair_order_stale_ = false;

    Bitmap abandoned_;
    std::uint32_t abandoned_known_ = 0;
};

}  // namespace dlcp

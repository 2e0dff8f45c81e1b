#include "engine/outgoing_message.hpp"

#include <array>

namespace dlcp {

void OutgoingMessage::cut(std::uint16_t block_bytes) {
    block_bytes_ = block_bytes;
    blocks_ = wire::block_count(message_bytes, block_bytes);
    all_critical_ = importance_.empty() || (deadline == 0 && budget_bytes() < block_bytes_);
    critical_blocks_ = blocks_;
    if (!all_critical_)
        critical_blocks_ = static_cast<std::uint32_t>(
            std::count(importance_.begin(), importance_.end(), wire::importance_critical));
    pass_end = UINT64_MAX;
    settled_at = time_never;
    first_pass_left_ = blocks_;
    critical_left_ = critical_blocks_;
    order_droppable();
    ends_critically_ = deadline == 0 && critical_blocks_ < blocks_;
    critical_blocks_ += ends_critically_;
    cursor_ = critical_left_ > 0 ? next_with(true, 0) : next_droppable(0);
    acked_.reset(blocks_);
    lost_critical_.reset(critical_blocks_ > 0 ? blocks_ : 0);
    lost_droppable_.reset(critical_blocks_ < blocks_ ? blocks_ : 0);
    abandoned_.reset(critical_blocks_ < blocks_ ? blocks_ : 0);
    ready_critical_.clear();
    ready_droppable_.clear();
    released_blocks_.reset(gated ? blocks_ : 0);
}

void OutgoingMessage::release(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t b = first; b < first + count; ++b)
        if (released_blocks_.insert(b)) (critical(b) ? ready_critical_ : ready_droppable_).push(b);
}

void OutgoingMessage::reset(std::uint16_t block_bytes, std::span<const std::uint8_t> importance) {
    importance_.assign(importance.begin(), importance.end());
    lost_critical_blocks_ = lost_droppable_blocks_ = lost_droppable_bytes_ = acked_blocks_ = abandoned_known_ = 0;
    repair_order_.clear();
    repair_order_stale_ = false;
    cut(block_bytes);
}

void OutgoingMessage::recut(std::uint16_t block_bytes) {
    if (block_bytes == block_bytes_) return;
    if (!importance_.empty() && message_bytes > 0) {
        std::vector<std::uint8_t> cut_anew(wire::block_count(message_bytes, block_bytes), 0);
        for (std::uint32_t i = 0; i < cut_anew.size(); ++i) {
            const std::uint64_t first = std::uint64_t{i} * block_bytes;
            const std::uint64_t last = std::min<std::uint64_t>(first + block_bytes, message_bytes) - 1;
            for (std::uint64_t old = first / block_bytes_; old <= last / block_bytes_; ++old)
                cut_anew[i] = std::max(cut_anew[i], importance_[old]);
        }
        importance_.swap(cut_anew);
    }
    cut(block_bytes);
}

std::uint32_t OutgoingMessage::next_with(bool critical, std::uint32_t from) const {
    if (all_critical_) return from;
    while (from < blocks_ && (importance_[from] == wire::importance_critical) != critical) ++from;
    return from;
}

void OutgoingMessage::order_droppable() {
    droppable_order_.clear();
    droppable_sent_ = 0;
    if ((deadline == 0 && patient_until == time_never) || gated || critical_blocks_ == blocks_) return;
    // A counting sort by importance, most important first; equal ones stay in their order.
    std::array<std::uint32_t, wire::importance_critical + 1> at{};
    for (const std::uint8_t each : importance_) ++at[wire::importance_critical - each];
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < at.size(); ++i) {
        const std::uint32_t count = i == 0 ? 0 : at[i];  // the critical ones are not among them
        at[i] = sum;
        sum += count;
    }
    droppable_order_.resize(sum);
    for (std::uint32_t block = 0; block < blocks_; ++block)
        if (!critical(block)) droppable_order_[at[wire::importance_critical - importance_[block]]++] = block;
}

// The next droppable block of the first pass; `from`: at or after it, if their order is that of the message.
std::uint32_t OutgoingMessage::next_droppable(std::uint32_t from) {
    if (droppable_order_.empty()) return next_with(false, from);
    return droppable_sent_ < droppable_order_.size() ? droppable_order_[droppable_sent_++] : blocks_;
}

OutgoingMessage::Next OutgoingMessage::peek() {
    if (lost_critical_blocks_ > 0) return {lost_critical_.find(0), true, true};
    if (gated && first_pass_ready() > 0) {
        const bool droppable = ready_critical_.empty();
        return {(droppable ? ready_droppable_ : ready_critical_).front(), !droppable || ends_droppable(), false};
    }
    if (!gated && first_pass_ready() > 0) return {cursor_, critical_left_ > 0 || ends_droppable(), false};
    if (repair_order_stale_) {
        repair_order_stale_ = false;
        repair_order_.clear();
        for (std::uint32_t b = lost_droppable_.find(0); b != Bitmap::none; b = lost_droppable_.find(b + 1))
            repair_order_.push_back(b);
        std::sort(repair_order_.begin(), repair_order_.end(), [this](std::uint32_t a, std::uint32_t b) {
            return importance_[a] != importance_[b] ? importance_[a] < importance_[b] : a > b;
        });
    }
    return {repair_order_.back(), false, true};
}

void OutgoingMessage::take(const Next& next) {
    if (next.repair) {
        if (next.critical) {
            lost_critical_.clear(next.block);
            --lost_critical_blocks_;
        } else {
            repair_order_.pop_back();
            lost_droppable_.clear(next.block);
            --lost_droppable_blocks_;
            lost_droppable_bytes_ -= payload_bytes(next.block);
        }
        return;
    }
    --first_pass_left_;
    const bool droppable = !critical(next.block);
    if (droppable && next.critical) importance_[next.block] = wire::importance_critical;
    if (!droppable) --critical_left_;
    if (gated) {
        (droppable ? ready_droppable_ : ready_critical_).pop();
        return;
    }
    if (!droppable && critical_left_ == 0)
        cursor_ = first_pass_left_ > 0 ? next_droppable(0) : 0;
    else
        cursor_ = droppable ? next_droppable(cursor_ + 1) : next_with(true, cursor_ + 1);
}

void OutgoingMessage::give_up_rest() {
    if (gated || critical_left_ > 0 || first_pass_left_ <= 1 || !ends_critically_) return;
    // Blocks of the pass that are left: the one under the cursor, which ends it, and what follows it in the order.
    std::uint64_t bytes = lost_droppable_bytes_;
    const std::uint32_t end = static_cast<std::uint32_t>(droppable_order_.size());
    if (bytes + std::uint64_t{end - droppable_sent_} * block_bytes_ > budget_bytes() + block_bytes_) return;
    for (std::uint32_t i = droppable_sent_; i < end; ++i) bytes += payload_bytes(droppable_order_[i]);
    if (bytes > budget_bytes()) return;
    for (; droppable_sent_ < end; ++droppable_sent_) on_lost(droppable_order_[droppable_sent_]);
    first_pass_left_ = 1;
}

void OutgoingMessage::on_acked(std::uint32_t block) {
    if (!acked_.insert(block)) return;
    ++acked_blocks_;
    if (critical(block)) {
        if (lost_critical_.test(block)) {
            lost_critical_.clear(block);
            --lost_critical_blocks_;
        }
    } else if (lost_droppable_.test(block)) {
        lost_droppable_.clear(block);
        --lost_droppable_blocks_;
        lost_droppable_bytes_ -= payload_bytes(block);
        repair_order_stale_ = true;
    }
}

void OutgoingMessage::on_lost(std::uint32_t block) {
    if (acked_.test(block)) return;
    if (critical(block)) {
        if (lost_critical_.insert(block)) ++lost_critical_blocks_;
    } else if (lost_droppable_.insert(block)) {
        ++lost_droppable_blocks_;
        lost_droppable_bytes_ += payload_bytes(block);
        repair_order_stale_ = true;
    }
}

bool OutgoingMessage::abandons_critical() const {
    for (std::uint32_t b = abandoned_.find(0); b != Bitmap::none; b = abandoned_.find(b + 1))
        if (critical(b)) return true;
    return false;
}

std::uint32_t OutgoingMessage::bytes_of(const Bitmap& blocks) const {
    if (blocks.size() == 0) return 0;
    const std::uint32_t n = blocks.count();
    if (n == 0) return 0;
    const bool last = blocks.test(blocks_ - 1);
    return (n - last) * block_bytes_ + (last ? payload_bytes(blocks_ - 1) : 0);
}

}  // namespace dlcp

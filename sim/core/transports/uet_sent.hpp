// What the sending end of a UET flow knows of its packets: sent, acknowledged, to be sent again.
//
// Transmissions stand in a ring in the order they left, each at a place: a count that never falls. Numbers that were
// lost wait in a second ring. Invariant: a number is in flight if its latest transmission is neither acknowledged nor
// given up; `in_flight` counts those. Work per packet and per acknowledgement is O(1).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace dlcp::sim {

struct UetTransmission {
    static constexpr std::uint32_t no_number = 0xffffff;  // trimmed or given up: this place means nothing any more

    std::uint32_t time;  // when it left, in units of 2^time_shift ps, modulo 2^32
    std::uint32_t entropy : 8;
    std::uint32_t number : 24;
};

class UetSent {
public:
    // The clock of transmissions: 4096 ps in 32 bits, so that 8 s can be compared.
    static constexpr unsigned time_shift = 12;
    static std::uint32_t clock(std::int64_t time_ps) { return static_cast<std::uint32_t>(time_ps >> time_shift); }
    static constexpr std::uint32_t most_packets = UetTransmission::no_number;

    UetSent() = default;
    // `ring_places` is rounded up to a power of two: a full ring holds the sender back.
    UetSent(std::uint32_t packets, std::uint32_t ring_places)
        : packets_(packets), ring_mask_(std::bit_ceil(ring_places) - 1) {
        ring_.resize(ring_mask_ + 1);
        blocks_.resize((packets + 63) / 64);
    }

    // Of the flow.
    std::uint32_t packets() const { return packets_; }
    std::uint32_t in_flight() const { return in_flight_; }
    std::uint32_t cumulative() const { return cumulative_; }
    bool complete() const { return acknowledged_ == packets_; }
    bool has(std::uint32_t number) const { return (blocks_[number / 64].acknowledged >> (number % 64) & 1) != 0; }

    // --- sending ---

    bool ring_full() const { return tail_ - head_ > ring_mask_; }
    bool nothing_to_send() const { return lost_head_ == lost_tail_ && next_number_ == packets_; }
    bool any_lost() const { return lost_head_ != lost_tail_; }
    bool all_new_sent() const { return next_number_ == packets_; }
    // Passes over lost numbers that have come after all.
    void skip_found() {
        while (lost_head_ != lost_tail_ && has(lost_[lost_head_ & ring_mask_])) ++lost_head_;
    }
    // The number to send now: a lost one, or else the next new one.
    std::uint32_t take_number() { return any_lost() ? lost_[lost_head_++ & ring_mask_] : next_number_++; }
    // The place that the next transmission gets.
    std::uint32_t next_place() const { return tail_; }
    void sent(std::int64_t now_ps, std::uint8_t entropy, std::uint32_t number) {
        ring_[tail_++ & ring_mask_] = {clock(now_ps), entropy, number};
        blocks_[number / 64].in_flight |= std::uint64_t{1} << (number % 64);
        ++in_flight_;
    }

    // --- acknowledgements: each returns how many packets are newly acknowledged ---

    // All numbers below `cumulative`.
    std::uint32_t acknowledge_below(std::uint32_t cumulative) {
        std::uint32_t fresh = 0;
        while (cumulative_ < cumulative) {
            const std::uint32_t from = cumulative_ % 64, count = std::min(64 - from, cumulative - cumulative_);
            const std::uint64_t bits = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
            fresh += acknowledge(cumulative_ / 64, bits << from);
            cumulative_ += count;
        }
        return fresh;
    }
    // Bit i: number `from` + i.
    std::uint32_t acknowledge_bits(std::uint32_t from, std::uint64_t bits) {
        if (bits == 0) return 0;
        const std::uint32_t word = from / 64, offset = from % 64;
        std::uint32_t fresh = acknowledge(word, bits << offset);
        if (offset != 0 && word + 1 < blocks_.size()) fresh += acknowledge(word + 1, bits >> (64 - offset));
        return fresh;
    }

    // --- the oldest transmissions ---

    // Whether nothing is waited for. Call drop_settled before.
    bool ring_empty() const { return head_ == tail_; }
    // Passes over transmissions at the head that need no waiting for any more.
    void drop_settled() {
        while (head_ != tail_) {
            const UetTransmission& oldest = ring_[head_ & ring_mask_];
            if (oldest.number != UetTransmission::no_number && !has(oldest.number)) return;
            ++head_;
        }
    }
    std::uint32_t oldest_place() const { return head_; }
    std::uint32_t oldest_time() const { return ring_[head_ & ring_mask_].time; }
    // Whether the transmission at that place is `number`'s and still in the ring.
    bool holds(std::uint32_t place, std::uint32_t number) const {
        return place - head_ < tail_ - head_ && ring_[place & ring_mask_].number == number;
    }
    // Whether the transmission at that place is still waited for.
    bool awaits(std::uint32_t place) const {
        if (place - head_ >= tail_ - head_) return false;
        const std::uint32_t number = ring_[place & ring_mask_].number;
        return number != UetTransmission::no_number && !has(number);
    }
    // That transmission will not arrive: its number is to be sent again. Returns the entropy it took.
    std::uint32_t give_up(std::uint32_t place) {
        UetTransmission& transmission = ring_[place & ring_mask_];
        const std::uint32_t number = transmission.number, entropy = transmission.entropy;
        transmission.number = UetTransmission::no_number;
        Block& block = blocks_[number / 64];
        const std::uint64_t bit = std::uint64_t{1} << (number % 64);
        if ((block.acknowledged & bit) != 0 || (block.in_flight & bit) == 0) return entropy;
        block.in_flight &= ~bit;
        --in_flight_;
        if (lost_.empty()) lost_.resize(ring_.size());
        lost_[lost_tail_++ & ring_mask_] = number;
        return entropy;
    }

private:
    // 64 packets of the flow.
    struct Block {
        std::uint64_t acknowledged = 0;
        std::uint64_t in_flight = 0;
    };

    std::uint32_t acknowledge(std::uint32_t word, std::uint64_t bits) {
        Block& block = blocks_[word];
        const std::uint64_t fresh = bits & ~block.acknowledged;
        const auto count = static_cast<std::uint32_t>(std::popcount(fresh));
        block.acknowledged |= fresh;
        in_flight_ -= static_cast<std::uint32_t>(std::popcount(fresh & block.in_flight));
        block.in_flight &= ~fresh;
        acknowledged_ += count;
        return count;
    }

    std::uint32_t packets_ = 0;
    std::uint32_t next_number_ = 0;   // the first that was never sent
    std::uint32_t cumulative_ = 0;    // all below are acknowledged, by the receiver's word
    std::uint32_t acknowledged_ = 0;  // packets
    std::uint32_t in_flight_ = 0;     // packets
    std::uint32_t ring_mask_ = 0;
    std::uint32_t head_ = 0;
    std::uint32_t tail_ = 0;
    std::uint32_t lost_head_ = 0;
    std::uint32_t lost_tail_ = 0;
    std::vector<UetTransmission> ring_;
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> lost_;  // numbers, as many places as the ring; empty until one is lost
};

}  // namespace dlcp::sim

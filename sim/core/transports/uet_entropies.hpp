// Which entropy a flow's next packet takes: those whose packets came back well are used again (REPS, arXiv 2407.21625);
// otherwise all take turns, each round in another order, and those that were marked, trimmed or lost sit rounds out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dlcp::sim {

class UetEntropies {
public:
    // How many rounds of all entropies one sits out.
    static constexpr std::uint8_t marked_penalty = 1, trimmed_penalty = 4, lost_penalty = 15;

    UetEntropies() = default;
    // `count`: a power of two up to 256. `random`: 64 random bits of the flow.
    UetEntropies(std::uint32_t count, bool recycles, std::uint64_t random)
        : random_(static_cast<std::uint32_t>(random) | 1),
          count_(static_cast<std::uint16_t>(count)),
          path_base_(static_cast<std::uint16_t>(random >> 32)),
          turn_mask_(static_cast<std::uint8_t>((random >> 48) & (count - 1))),
          recycles_(recycles) {}

    std::uint16_t path_of(std::uint8_t entropy) const { return static_cast<std::uint16_t>(path_base_ + entropy); }

    std::uint8_t pick() {
        while (recycled_count_ != 0) {
            const std::uint8_t entropy = recycled_[recycled_first_];
            recycled_first_ = (recycled_first_ + 1) % recycled_places;
            --recycled_count_;
            if (fit(entropy)) return entropy;
        }
        std::uint32_t entropy = 0;
        for (std::uint32_t tried = 0; tried < count_; ++tried) {
            if (turn_ == count_) begin_round();
            entropy = turn_++ ^ turn_mask_;
            if (fit(entropy)) break;
            --penalty_[entropy];
        }
        return static_cast<std::uint8_t>(entropy);
    }

    void penalise(std::uint32_t entropy, std::uint8_t penalty) {
        if (penalty_.empty()) penalty_.resize(count_);
        penalty_[entropy] = std::max(penalty_[entropy], penalty);
    }

    // A packet of this path has been acknowledged.
    void judge(std::uint16_t path, bool marked) {
        const auto entropy = static_cast<std::uint16_t>(path - path_base_);
        if (marked) {
            penalise(entropy, marked_penalty);
            return;
        }
        if (!recycles_ || recycled_count_ == recycled_places) return;
        recycled_[(recycled_first_ + recycled_count_) % recycled_places] = static_cast<std::uint8_t>(entropy);
        ++recycled_count_;
    }

private:
    static constexpr std::uint32_t recycled_places = 32;

    bool fit(std::uint32_t entropy) const { return penalty_.empty() || penalty_[entropy] == 0; }
    void begin_round() {
        turn_ = 0;
        random_ ^= random_ << 13;  // xorshift (Marsaglia 2003)
        random_ ^= random_ >> 17;
        random_ ^= random_ << 5;
        turn_mask_ = static_cast<std::uint8_t>(random_ & (count_ - 1U));
    }

    std::uint32_t random_ = 1;
    std::uint16_t count_ = 1;
    std::uint16_t path_base_ = 0;
    std::uint16_t turn_ = 0;  // of the round; at `count_` the next one begins
    std::uint8_t turn_mask_ = 0;
    bool recycles_ = false;
    std::uint8_t recycled_first_ = 0;
    std::uint8_t recycled_count_ = 0;
    std::uint8_t recycled_[recycled_places] = {};  // a ring of those to be used again
    std::vector<std::uint8_t> penalty_;            // rounds to sit out, per entropy; empty until one is penalised
};

}  // namespace dlcp::sim

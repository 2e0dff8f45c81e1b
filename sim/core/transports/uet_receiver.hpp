// What the receiving end of a UET flow has got: bits of packets by number, and what an acknowledgement says of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace dlcp::sim {

class UetReceiver {
public:
    explicit UetReceiver(std::uint32_t packets) : packets_(packets), words_((packets + 63) / 64) {}

    bool has(std::uint32_t number) const { return (words_[number / 64] >> (number % 64) & 1) != 0; }
    bool complete() const { return received_ == packets_; }
    // The first number that is missing.
    std::uint32_t cumulative() const { return cumulative_; }

    // The packet of that number has come, for the first time.
    void take(std::uint32_t number) {
        words_[number / 64] |= std::uint64_t{1} << (number % 64);
        ++received_;
        while (cumulative_ < packets_) {  // a word at a time
            const std::uint64_t missing = ~words_[cumulative_ / 64] >> (cumulative_ % 64);
            if (missing == 0) {
                cumulative_ += 64 - cumulative_ % 64;
                continue;
            }
            cumulative_ += static_cast<std::uint32_t>(std::countr_zero(missing));
            break;
        }
        cumulative_ = std::min(cumulative_, packets_);
    }

    // Which of the 64 packets from `from` on have come.
    std::uint64_t bits_from(std::uint32_t from) const {
        if (from >= packets_) return 0;
        const std::uint32_t word = from / 64, offset = from % 64;
        std::uint64_t bits = words_[word] >> offset;
        if (offset != 0 && word + 1 < words_.size()) bits |= words_[word + 1] << (64 - offset);
        return bits;
    }

    std::uint32_t unacknowledged = 0;  // packets that have come since the last acknowledgement

private:
    std::uint32_t packets_;
    std::uint32_t received_ = 0;
    std::uint32_t cumulative_ = 0;
    std::vector<std::uint64_t> words_;
};

}  // namespace dlcp::sim

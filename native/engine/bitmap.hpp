// A bitmap over the blocks of one message. Keeps its memory when reset, so that a reused message allocates nothing.
//
// Invariant: bits at and past size() are zero.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace dlcp {

class Bitmap {
public:
    static constexpr std::uint32_t none = UINT32_MAX;

    void reset(std::uint32_t bits) {
        size_ = bits;
        words_.assign((bits + 63) / 64, 0);
    }
    std::uint32_t size() const { return size_; }
    bool test(std::uint32_t bit) const { return words_[bit / 64] >> (bit % 64) & 1; }
    void set(std::uint32_t bit) { words_[bit / 64] |= std::uint64_t{1} << (bit % 64); }
    void clear(std::uint32_t bit) { words_[bit / 64] &= ~(std::uint64_t{1} << (bit % 64)); }
    // Sets the bit; true if it was clear.
    bool insert(std::uint32_t bit) {
        const std::uint64_t mask = std::uint64_t{1} << (bit % 64);
        const bool fresh = !(words_[bit / 64] & mask);
        words_[bit / 64] |= mask;
        return fresh;
    }
    std::uint32_t count() const {
        std::uint32_t n = 0;
        for (std::uint64_t word : words_) n += static_cast<std::uint32_t>(std::popcount(word));
        return n;
    }
    // First set bit at or after `from`; none if there is none.
    std::uint32_t find(std::uint32_t from) const {
        if (from >= size_) return none;
        std::size_t w = from / 64;
        std::uint64_t word = words_[w] & (~std::uint64_t{0} << (from % 64));
        while (word == 0) {
            if (++w == words_.size()) return none;
            word = words_[w];
        }
        return static_cast<std::uint32_t>(w * 64) + static_cast<std::uint32_t>(std::countr_zero(word));
    }
    // Inverts every bit: received blocks become missing ones.
    void invert() {
        for (std::uint64_t& word : words_) word = ~word;
        if (size_ % 64 != 0) words_.back() &= ~(~std::uint64_t{0} << (size_ % 64));
    }
    // Ors one word in, ignoring bits past the end. Returns how many bits were new.
    std::uint32_t merge_word(std::size_t index, std::uint64_t word) {
        if (index >= words_.size()) return 0;
        if (index + 1 == words_.size() && size_ % 64 != 0) word &= ~(~std::uint64_t{0} << (size_ % 64));
        const std::uint64_t fresh = word & ~words_[index];
        words_[index] |= word;
        return static_cast<std::uint32_t>(std::popcount(fresh));
    }
    std::span<const std::uint64_t> words() const { return words_; }

private:
    std::vector<std::uint64_t> words_;
    std::uint32_t size_ = 0;
};

}  // namespace dlcp

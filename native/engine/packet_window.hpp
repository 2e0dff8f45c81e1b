// The receiver's memory of packet numbers: which of the last 8192 arrived, for acknowledgements and replay protection.
//
// Two sets. Accepted numbers are acknowledged. Refused numbers (authentic, but there was no room) are not, so the
// sender repeats their blocks under other numbers. Neither is fresh again. Invariant: `largest` is the largest packet
// number ever inserted; a number 8192 or more below the largest accepted or refused one counts as seen. The width
// bounds the packets in flight: the sender never has an unresolved packet older than the window.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "engine/prefetch.hpp"
#include "engine/units.hpp"

namespace dlcp {

class PacketWindow {
public:
    static constexpr std::uint64_t width = 8192;

    void reset() { *this = PacketWindow(); }
    bool empty() const { return empty_; }
    std::uint64_t largest() const { return largest_; }

    // True if this number was not seen and is not too old. Does not insert, so that a packet can be authenticated
    // between the two steps.
    bool fresh(std::uint64_t number) const {
        if (refused_ && refused_->has(number)) return false;
        if (empty_ || number > largest_) return true;
        return largest_ - number < width && !bit(received_, number);
    }
    // Records an authentic packet that was refused. Allocates at a session's first refusal: few sessions refuse any.
    void refuse(std::uint64_t number) {
        if (!refused_) refused_ = std::make_unique<Refused>();
        refused_->insert(number);
    }
    void insert(std::uint64_t number, bool ce) {
        if (empty_) {
            empty_ = false;
            largest_ = number;
        } else if (number > largest_) {
            advance(number);
        }
        set(received_, number);
        if (ce) {
            set(ce_, number);
            has_ce_ = true;
        }
        lowest_new_ = std::min(lowest_new_, number);
    }

    // The numbers that the next acknowledgement should cover: everything new in the last `ack_memory`
    // acknowledgements, so that losing some of them in a row loses nothing.
    std::uint64_t ack_base() const {
        std::uint64_t base = std::min(lowest_new_, largest_);
        for (std::uint64_t low : lowest_) base = std::min(base, low);
        return std::max(base, largest_ - std::min(largest_, width - 1));
    }
    void acknowledged() {
        lowest_[turn_++ % ack_memory] = lowest_new_;
        lowest_new_ = UINT64_MAX;
    }
    bool has_ce() const { return has_ce_; }
    // 64 packets ending at `newest`, newest in bit 0: the order of the ack frame.
    std::uint64_t received_word(std::uint64_t newest) const { return word(received_, newest); }
    std::uint64_t ce_word(std::uint64_t newest) const { return word(ce_, newest); }

    // What a packet of this number touches; its low bits are enough.
    void prefetch(std::uint64_t number) const {
        dlcp::prefetch(&received_[number / 64 % received_.size()]);
        dlcp::prefetch(&ce_[number / 64 % ce_.size()]);
        dlcp::prefetch(&refused_);
        dlcp::prefetch(&has_ce_);
    }

private:
    static constexpr std::size_t ack_memory = 4;
    using Bits = std::array<std::uint64_t, width / 64>;

    static bool bit(const Bits& bits, std::uint64_t number) {
        return bits[number / 64 % bits.size()] >> (number % 64) & 1;
    }
    static void set(Bits& bits, std::uint64_t number) {
        bits[number / 64 % bits.size()] |= std::uint64_t{1} << (number % 64);
    }
    // Clears the bits of `first` to `last`, which stood for the numbers one width below.
    template <class... Each>
    static void forget(std::uint64_t first, std::uint64_t last, Each&... bits) {
        if (last - first + 1 >= width) {
            (bits.fill(0), ...);
            return;
        }
        for (std::uint64_t n = first; n <= last;) {
            const std::uint64_t in_word = std::min<std::uint64_t>(64 - n % 64, last - n + 1);
            const std::uint64_t mask = (in_word == 64 ? ~std::uint64_t{0} : ((std::uint64_t{1} << in_word) - 1))
                                       << (n % 64);
            ((bits[n / 64 % (width / 64)] &= ~mask), ...);
            n += in_word;
        }
    }
    void advance(std::uint64_t number) {
        forget(largest_ + 1, number, received_, ce_);
        largest_ = number;
    }

    struct Refused {
        Bits bits{};
        std::uint64_t largest = 0;
        bool has(std::uint64_t number) const {
            return number <= largest && (largest - number >= width || bit(bits, number));
        }
        void insert(std::uint64_t number) {
            if (number > largest) {
                forget(largest + 1, number, bits);
                largest = number;
            }
            set(bits, number);
        }
    };
    std::uint64_t word(const Bits& bits, std::uint64_t newest) const {
        std::uint64_t forward;  // bit 63: newest
        const std::uint64_t shift = newest % 64;
        const std::uint64_t high = bits[newest / 64 % bits.size()];
        if (shift == 63) {
            forward = high;
        } else {
            const std::uint64_t low = newest >= 64 ? bits[(newest / 64 - 1) % bits.size()] : 0;
            forward = high << (63 - shift) | low >> (shift + 1);
        }
        return reverse(forward);
    }
    static std::uint64_t reverse(std::uint64_t v) {
        v = __builtin_bswap64(v);
        v = (v >> 4 & 0x0f0f0f0f0f0f0f0fULL) | (v & 0x0f0f0f0f0f0f0f0fULL) << 4;
        v = (v >> 2 & 0x3333333333333333ULL) | (v & 0x3333333333333333ULL) << 2;
        return (v >> 1 & 0x5555555555555555ULL) | (v & 0x5555555555555555ULL) << 1;
    }

    Bits received_{};
    Bits ce_{};
    std::unique_ptr<Refused> refused_;  // none until a packet is refused
    std::uint64_t largest_ = 0;
    std::uint64_t lowest_new_ = UINT64_MAX;
    std::array<std::uint64_t, ack_memory> lowest_{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    std::uint32_t turn_ = 0;
    bool empty_ = true;
    bool has_ce_ = false;
};

}  // namespace dlcp

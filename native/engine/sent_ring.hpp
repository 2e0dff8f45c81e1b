// The sender's memory of transmissions: what each packet number carried, until it is resolved.
//
// A packet is *tracked* from sending until it is acknowledged, or, once declared lost, until it falls too far behind
// for a late acknowledgement to matter. Invariant: every tracked number lies in [oldest, next) and next - oldest
// never exceeds PacketWindow::width, so that an acknowledgement can always name it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "engine/packet_window.hpp"
#include "engine/prefetch.hpp"
#include "engine/units.hpp"

namespace dlcp {

struct SentPacket {
    static constexpr std::uint32_t no_message = UINT32_MAX;  // control that asks for an acknowledgement

    // By which rule a packet counts as lost (recovery.cpp); `none`: it does not; `held`: the receiver dropped it;
    // `too_large`: for the path.
    enum class Loss : std::uint8_t {
        none,
        overtaken_in_lane,
        overtaken,
        pass_over,
        overdue,
        trimmed,
        held,
        too_large
    };

    Time sent_at{0};
    std::uint32_t message_slot = no_message;
    std::uint32_t message_generation = 0;
    std::uint32_t block = 0;  // of control: the size that this packet tests; 0: it is no test
    // As windows count it (data_writer.cpp), or its pieces; 0 for control: it does not count as in flight.
    std::uint16_t bytes = 0;
    std::uint16_t path = 0;
    std::uint8_t traffic_class = 0;  // of the queue it travels in
    Loss loss = Loss::none;
    std::uint8_t saved = 0;  // of `bytes`: what a short header left out
    bool alone = false;      // a run of its own (DLCP_PACKET_ALONE)

    std::uint16_t datagram_bytes() const { return static_cast<std::uint16_t>(bytes - saved); }
    bool lost() const { return loss != Loss::none; }
    bool is_size_test() const { return message_slot == no_message && block != 0; }
};
// Two to a cache line: each packet sent writes one, each acknowledged reads one, by then out of the cache.
static_assert(sizeof(SentPacket) == 32);

class SentRing {
public:
    SentRing() : entries_(initial), tracked_(initial / 64) {}

    void reset() {
        std::fill(tracked_.begin(), tracked_.end(), 0);
        next_ = oldest_ = 0;
    }
    std::uint64_t next() const { return next_; }
    std::uint64_t oldest() const { return oldest_; }
    // No room: the oldest unresolved packet is a whole window behind.
    bool full() const { return room() == 0; }
    // How many more packets the window holds.
    std::uint64_t room() const { return PacketWindow::width - std::min(next_ - oldest_, PacketWindow::width); }

    // Takes the next packet number. An untracked one (a pure acknowledgement) needs no entry.
    std::uint64_t skip() {
        if (next_ - oldest_ >= entries_.size()) grow();
        const std::uint64_t number = next_++;
        if (oldest_ == number) oldest_ = next_;
        return number;
    }
    std::uint64_t push(const SentPacket& packet) {
        if (next_ - oldest_ >= entries_.size()) grow();
        const std::uint64_t number = next_++;
        (*this)[number] = packet;
        word(number) |= std::uint64_t{1} << (number % 64);
        return number;
    }
    bool tracked(std::uint64_t number) const {
        return number >= oldest_ && number < next_ && (word(number) >> (number % 64) & 1);
    }
    SentPacket& operator[](std::uint64_t number) { return entries_[number & (entries_.size() - 1)]; }
    const SentPacket& operator[](std::uint64_t number) const { return entries_[number & (entries_.size() - 1)]; }
    void resolve(std::uint64_t number) { word(number) &= ~(std::uint64_t{1} << (number % 64)); }
    // First tracked number at or after `from`; next() if there is none.
    std::uint64_t find(std::uint64_t from) const {
        if (from < oldest_) from = oldest_;
        while (from < next_) {
            const std::uint64_t rest = word(from) >> (from % 64);
            if (rest != 0) {
                from += static_cast<std::uint64_t>(std::countr_zero(rest));
                return from < next_ ? from : next_;
            }
            from = (from / 64 + 1) * 64;
        }
        return next_;
    }
    void prefetch_next() const {
        prefetch(&(*this)[next_]);
        prefetch(&word(next_));
    }
    // Moves `oldest` past resolved packets, and past lost ones too far behind for a late acknowledgement to matter.
    void trim() {
        oldest_ = find(oldest_);
        while (oldest_ < next_ && (*this)[oldest_].lost() && next_ - oldest_ > late_width) {
            resolve(oldest_);
            oldest_ = find(oldest_);
        }
    }

private:
    static constexpr std::size_t initial = 128;
    // After this many packets a lost one is no longer watched: a quarter of the window.
    static constexpr std::uint64_t late_width = PacketWindow::width / 4;

    // Both sizes are powers of two: a place is found without a division.
    std::uint64_t& word(std::uint64_t number) { return tracked_[number / 64 & (tracked_.size() - 1)]; }
    const std::uint64_t& word(std::uint64_t number) const { return tracked_[number / 64 & (tracked_.size() - 1)]; }

    void grow() {
        const std::size_t size = entries_.size();
        std::vector<SentPacket> entries(size * 2);
        std::vector<std::uint64_t> tracked(size * 2 / 64, 0);
        for (std::uint64_t n = find(oldest_); n < next_; n = find(n + 1)) {
            entries[n & (entries.size() - 1)] = (*this)[n];
            tracked[n / 64 & (tracked.size() - 1)] |= std::uint64_t{1} << (n % 64);
        }
        entries_.swap(entries);
        tracked_.swap(tracked);
    }

    std::vector<SentPacket> entries_;
    std::vector<std::uint64_t> tracked_;
    std::uint64_t next_ = 0;
    std::uint64_t oldest_ = 0;
};

}  // namespace dlcp

// Which bytes of a chunk are available, in granules: the common unit of blocks cut for different peers.
//
// A block starts and ends at a multiple of the granule, or ends with its chunk, whatever datagrams its peer's path
// carries; so a granule is there as a whole or not at all, and no element straddles two blocks. A granule has 16 bytes,
// or is a group of coded values (codec.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace dlcp {

class Granules {
public:
    static constexpr std::uint32_t granule_bytes = 16;

    void reset(std::uint64_t bytes, std::uint32_t unit_bytes = granule_bytes) {
        unit_bytes_ = unit_bytes;
        bits_ = static_cast<std::uint32_t>((bytes + unit_bytes - 1) / unit_bytes);
        words_.assign((bits_ + 63) / 64, 0);
    }
    bool tracked() const { return !words_.empty(); }

    void set(std::uint32_t offset, std::uint32_t bytes) {
        each_word(offset, bytes, [this](std::size_t w, std::uint64_t mask) {
            words_[w] |= mask;
            return true;
        });
    }
    bool all(std::uint32_t offset, std::uint32_t bytes) const {
        return each_word(offset, bytes,
                         [this](std::size_t w, std::uint64_t mask) { return (words_[w] & mask) == mask; });
    }
    // The first run of bytes from `offset` on, below `end`, whose availability is `wanted`; false: none.
    bool next_run(std::uint32_t offset, std::uint32_t end, bool wanted, std::uint32_t& first,
                  std::uint32_t& last) const {
        std::uint32_t bit = find(offset / unit_bytes_, end, wanted);
        first = bit * unit_bytes_;
        if (first >= end) return false;
        bit = find(bit, end, !wanted);
        last = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{bit} * unit_bytes_, end));
        return true;
    }

private:
    template <class Visit>
    bool each_word(std::uint32_t offset, std::uint32_t bytes, Visit&& visit) const {
        if (bytes == 0) return true;
        std::uint32_t bit = offset / unit_bytes_;
        const std::uint32_t end =
            static_cast<std::uint32_t>((std::uint64_t{offset} + bytes + unit_bytes_ - 1) / unit_bytes_);
        while (bit < end) {
            const std::uint32_t stop = std::min(end, (bit / 64 + 1) * 64);
            const std::uint32_t count = stop - bit;
            const std::uint64_t mask = (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1)
                                       << (bit % 64);
            if (!visit(bit / 64, mask)) return false;
            bit = stop;
        }
        return true;
    }
    // First granule at or after `bit` that is as wanted; at or past `end` bytes if there is none.
    std::uint32_t find(std::uint32_t bit, std::uint32_t end, bool wanted) const {
        const std::uint32_t stop =
            static_cast<std::uint32_t>((std::uint64_t{end} + unit_bytes_ - 1) / unit_bytes_);
        while (bit < stop) {
            std::uint64_t word = wanted ? words_[bit / 64] : ~words_[bit / 64];
            word &= ~std::uint64_t{0} << (bit % 64);
            if (word != 0)
                return std::min(stop, bit / 64 * 64 + static_cast<std::uint32_t>(std::countr_zero(word)));
            bit = (bit / 64 + 1) * 64;
        }
        return stop;
    }

    std::vector<std::uint64_t> words_;
    std::uint32_t unit_bytes_ = granule_bytes;
    std::uint32_t bits_ = 0;
};

}  // namespace dlcp

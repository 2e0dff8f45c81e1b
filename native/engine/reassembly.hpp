// Datagrams that arrive in pieces, until they are whole.
//
// A piece travels in a packet of its own, whose number is taken once, and no piece is sent twice: so bytes are counted,
// not marked. Bounded: so many datagrams at once; a newer one takes the place of the oldest, whose sender finds it lost.
// Nothing is allocated before the first piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace dlcp {

class Reassembly {
public:
    struct Partial {
        std::uint64_t number = UINT64_MAX;  // packet number of the datagram; UINT64_MAX: none
        std::uint16_t length = 0;
        std::uint16_t have = 0;  // bytes that arrived
        bool marked = false;     // a piece arrived with congestion experienced
        std::vector<std::uint8_t> bytes;
    };

    // Adds a piece. The datagram, if it is whole now: valid until the next call. nullptr: it is not.
    Partial* add(std::uint64_t number, std::uint16_t length, std::uint16_t offset,
                 std::span<const std::uint8_t> piece, bool marked) {
        if (piece.empty() || std::size_t{offset} + piece.size() > length) return nullptr;
        if (partials_.empty()) partials_.resize(most_partials);
        Partial* const partial = find(number);
        if (partial == nullptr) return nullptr;
        if (partial->number != number) {
            partial->number = number;
            partial->length = length;
            partial->have = 0;
            partial->marked = false;
            if (partial->bytes.size() < length) partial->bytes.resize(length);
        }
        if (partial->length != length || piece.size() > std::size_t{length} - partial->have) return nullptr;
        std::memcpy(partial->bytes.data() + offset, piece.data(), piece.size());
        partial->have = static_cast<std::uint16_t>(partial->have + piece.size());
        partial->marked |= marked;
        if (partial->have < length) return nullptr;
        partial->number = UINT64_MAX;
        return partial;
    }

private:
    // Datagrams of several paths interleave, and lost pieces leave some behind.
    static constexpr std::size_t most_partials = 32;

    // The place of this datagram, an empty one, or that of the oldest; nullptr: it is older than all.
    Partial* find(std::uint64_t number) {
        Partial* oldest = nullptr;
        Partial* empty = nullptr;
        for (Partial& each : partials_) {
            if (each.number == number) return &each;
            if (each.number == UINT64_MAX)
                empty = &each;
            else if (oldest == nullptr || each.number < oldest->number)
                oldest = &each;
        }
        if (empty != nullptr) return empty;
        return oldest->number < number ? oldest : nullptr;
    }

    std::vector<Partial> partials_;
};

}  // namespace dlcp

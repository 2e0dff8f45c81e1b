// From an address to a number: open addressing, linear probing, backward-shift deletion, at most half full. Finding
// allocates nothing.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "ipstack/address.hpp"

namespace dlcp::ipstack {

inline std::uint64_t hash_of(const IpAddress& address) {
    std::uint64_t high, low;
    std::memcpy(&high, address.bytes.data(), 8);
    std::memcpy(&low, address.bytes.data() + 8, 8);
    // Two rounds of the mixer of SplitMix64.
    std::uint64_t z = (high ^ address.bits) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 31) ^ low) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}
inline std::uint64_t hash_of(const UdpAddress& address) {
    const std::uint64_t z = (hash_of(address.ip) ^ address.port) * 0xbf58476d1ce4e5b9ULL;
    return z ^ (z >> 31);
}

template <class Key>
class AddressMap {
public:
    static constexpr std::uint32_t absent = UINT32_MAX;

    AddressMap() : cells_(16) {}

    std::uint32_t find(const Key& key) const {
        for (std::size_t i = home(key);; i = (i + 1) & mask()) {
            if (cells_[i].number == absent) return absent;
            if (cells_[i].key == key) return cells_[i].number;
        }
    }
    // `key` is not there yet.
    void insert(const Key& key, std::uint32_t number) {
        if ((used_ + 1) * 2 > cells_.size()) grow();
        place(key, number);
        ++used_;
    }
    void erase(const Key& key) {
        std::size_t hole = home(key);
        for (;; hole = (hole + 1) & mask()) {
            if (cells_[hole].number == absent) return;
            if (cells_[hole].key == key) break;
        }
        --used_;
        for (std::size_t i = (hole + 1) & mask(); cells_[i].number != absent; i = (i + 1) & mask()) {
            // What lies at `i` may move to the hole unless its home is behind the hole.
            if (((i - home(cells_[i].key)) & mask()) < ((i - hole) & mask())) continue;
            cells_[hole] = cells_[i];
            hole = i;
        }
        cells_[hole].number = absent;
    }

private:
    struct Cell {
        Key key{};
        std::uint32_t number = absent;
    };

    std::size_t mask() const { return cells_.size() - 1; }
    std::size_t home(const Key& key) const { return hash_of(key) & mask(); }
    void place(const Key& key, std::uint32_t number) {
        std::size_t i = home(key);
        while (cells_[i].number != absent) i = (i + 1) & mask();
        cells_[i] = {key, number};
    }
    void grow() {
        std::vector<Cell> old(cells_.size() * 2);
        old.swap(cells_);
        for (const Cell& cell : old)
            if (cell.number != absent) place(cell.key, cell.number);
    }

    std::vector<Cell> cells_;
    std::size_t used_ = 0;
};

}  // namespace dlcp::ipstack

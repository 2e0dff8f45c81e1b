// Maps (scope, tag) to the first and last object of a chain: open addressing, linear probing, backward-shift deletion,
// so that no tombstones accumulate. A scope is a peer, or one of the caller's constants.
#pragma once

#include <cstdint>
#include <vector>

namespace dlcp {

class TagMap {
public:
    struct Chain {
        std::uint32_t first = UINT32_MAX;
        std::uint32_t last = UINT32_MAX;
    };

    TagMap() : cells_(16) {}

    Chain* find(std::uint32_t scope, std::uint64_t tag) {
        for (std::size_t i = home(scope, tag);; i = (i + 1) & mask()) {
            if (!cells_[i].used) return nullptr;
            if (cells_[i].tag == tag && cells_[i].scope == scope) return &cells_[i].chain;
        }
    }
    // The chain; created empty if it is new.
    Chain& get(std::uint32_t scope, std::uint64_t tag) {
        if (Chain* chain = find(scope, tag)) return *chain;
        if ((used_ + 1) * 2 > cells_.size()) grow();
        std::size_t i = home(scope, tag);
        while (cells_[i].used) i = (i + 1) & mask();
        cells_[i] = {tag, scope, true, {}};
        ++used_;
        return cells_[i].chain;
    }
    void erase(std::uint32_t scope, std::uint64_t tag) {
        std::size_t i = home(scope, tag);
        for (;; i = (i + 1) & mask()) {
            if (!cells_[i].used) return;
            if (cells_[i].tag == tag && cells_[i].scope == scope) break;
        }
        --used_;
        for (std::size_t j = i;;) {
            cells_[i].used = false;
            for (;;) {
                j = (j + 1) & mask();
                if (!cells_[j].used) return;
                const std::size_t wanted = home(cells_[j].scope, cells_[j].tag);
                // Move j back to i unless its home lies cyclically in (i, j].
                if (i <= j ? (wanted <= i || wanted > j) : (wanted <= i && wanted > j)) break;
            }
            cells_[i] = cells_[j];
            i = j;
        }
    }
    std::size_t size() const { return used_; }

private:
    struct Cell {
        std::uint64_t tag = 0;
        std::uint32_t scope = 0;
        bool used = false;
        Chain chain;
    };
    std::size_t mask() const { return cells_.size() - 1; }
    std::size_t home(std::uint32_t scope, std::uint64_t tag) const {
        std::uint64_t h = (tag + scope * 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL;
        h ^= h >> 32;
        return static_cast<std::size_t>(h * 0xd6e8feb86659fd93ULL >> 20) & mask();
    }
    void grow() {
        std::vector<Cell> old(cells_.size() * 2);
        old.swap(cells_);
        for (const Cell& cell : old) {
            if (!cell.used) continue;
            std::size_t i = home(cell.scope, cell.tag);
            while (cells_[i].used) i = (i + 1) & mask();
            cells_[i] = cell;
        }
    }

    std::vector<Cell> cells_;
    std::size_t used_ = 0;
};

}  // namespace dlcp

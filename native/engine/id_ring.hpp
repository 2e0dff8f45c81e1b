// Values by consecutive id: a ring over [base, end), found without hashing.
//
// Ids below base are over and forgotten. The ring doubles when the span outgrows it, up to the caller's bound: its size
// is a power of two, so that a place is found without a division.
#pragma once

#include <cstdint>
#include <vector>

namespace dlcp {

template <class T>
class IdRing {
public:
    explicit IdRing(std::uint32_t first = 1) : base_(first), end_(first), items_(16) {}

    std::uint32_t base() const { return base_; }
    std::uint32_t end() const { return end_; }
    std::uint32_t span() const { return end_ - base_; }
    bool contains(std::uint32_t id) const { return id >= base_ && id < end_; }
    T& operator[](std::uint32_t id) { return items_[id & (items_.size() - 1)]; }
    const T& operator[](std::uint32_t id) const { return items_[id & (items_.size() - 1)]; }

    // Makes room up to and including `id` (at or past base), filling with default values.
    void extend(std::uint32_t id) {
        if (id < end_) return;
        if (id - base_ >= items_.size()) {
            std::size_t size = items_.size();
            while (id - base_ >= size) size *= 2;
            std::vector<T> larger(size);
            for (std::uint32_t i = base_; i != end_; ++i) larger[i & (size - 1)] = (*this)[i];
            items_.swap(larger);
        }
        for (; end_ <= id; ++end_) (*this)[end_] = T{};
    }
    // Forgets every id below `base`.
    void advance(std::uint32_t base) {
        base_ = base;
        if (end_ < base_) end_ = base_;
    }
    void reset() { base_ = end_ = 1; }

private:
    std::uint32_t base_;
    std::uint32_t end_;
    std::vector<T> items_;
};

}  // namespace dlcp

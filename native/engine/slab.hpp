// Objects that are acquired and returned often: stable addresses, a slot number each, reused without freeing.
//
// A reused object keeps what its last life left in it (vectors keep their capacity): the caller that takes one resets
// it. The generation counts lives, so that a number kept from an earlier life is recognised.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/prefetch.hpp"

namespace dlcp {

template <class T>
class Slab {
public:
    static constexpr std::uint32_t none = UINT32_MAX;

    std::uint32_t take() {
        if (free_.empty()) {
            const auto first = static_cast<std::uint32_t>(generations_.size());
            chunks_.push_back(std::make_unique<T[]>(chunk_objects));
            generations_.resize(first + chunk_objects, 0);
            free_.reserve(generations_.size());
            for (std::uint32_t i = chunk_objects; i-- > 0;) free_.push_back(first + i);
        }
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        ++generations_[slot];  // odd: in use
        return slot;
    }
    void give_back(std::uint32_t slot) {
        ++generations_[slot];
        free_.push_back(slot);
    }
    T& operator[](std::uint32_t slot) { return chunks_[slot / chunk_objects][slot % chunk_objects]; }
    const T& operator[](std::uint32_t slot) const { return chunks_[slot / chunk_objects][slot % chunk_objects]; }
    std::uint32_t generation(std::uint32_t slot) const { return generations_[slot]; }
    bool in_use(std::uint32_t slot, std::uint32_t generation) const {
        return slot < generations_.size() && generations_[slot] == generation && (generation & 1);
    }
    std::uint32_t slots() const { return static_cast<std::uint32_t>(generations_.size()); }
    bool in_use(std::uint32_t slot) const { return generations_[slot] & 1; }
    // Where objects are found, not the objects.
    void prefetch_table() const {
        prefetch(chunks_.data());
        prefetch(generations_.data());
    }

private:
    static constexpr std::uint32_t chunk_objects = 16;
    std::vector<std::unique_ptr<T[]>> chunks_;
    std::vector<std::uint32_t> generations_;
    std::vector<std::uint32_t> free_;
};

}  // namespace dlcp

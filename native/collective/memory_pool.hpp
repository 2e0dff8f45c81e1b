// Memory that collectives borrow for a while: scratch chunks, and copies of short messages on their way out.
//
// Returned memory is kept for the next borrower, since fresh pages cost more than the reduction that uses them. Beyond
// `most_kept_bytes` it goes back to the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dlcp {

class MemoryPool {
public:
    struct Piece {
        std::unique_ptr<std::uint8_t[]> data;
        std::size_t bytes = 0;
    };

    Piece take(std::size_t bytes) {
        std::size_t best = free_.size();
        for (std::size_t i = 0; i < free_.size(); ++i)
            if (free_[i].bytes >= bytes && free_[i].bytes / 4 <= bytes + least_bytes &&
                (best == free_.size() || free_[i].bytes < free_[best].bytes))
                best = i;
        if (best == free_.size()) {
            const std::size_t size = bytes < least_bytes ? least_bytes : bytes;
            return {std::unique_ptr<std::uint8_t[]>(new std::uint8_t[size]), size};
        }
        Piece piece = std::move(free_[best]);
        free_[best] = std::move(free_.back());
        free_.pop_back();
        kept_bytes_ -= piece.bytes;
        return piece;
    }
    void give_back(Piece piece) {
        if (piece.data == nullptr || free_.size() >= most_kept || kept_bytes_ + piece.bytes > most_kept_bytes)
            return;
        kept_bytes_ += piece.bytes;
        free_.push_back(std::move(piece));
    }

private:
    static constexpr std::size_t least_bytes = 4096;
    static constexpr std::size_t most_kept = 256;
    static constexpr std::size_t most_kept_bytes = std::size_t{512} << 20;
    std::vector<Piece> free_;
    std::size_t kept_bytes_ = 0;
};

}  // namespace dlcp

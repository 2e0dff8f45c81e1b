// Frames of the interface's own that wait to be sent: a ring of a fixed number; what finds no room is dropped.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ipstack/interface.hpp"

namespace dlcp::ipstack {

class OwnFrames {
public:
    // Room for the next frame, zeroed, its padding to Ethernet's minimum included; empty if there is none.
    std::span<std::uint8_t> add(std::size_t bytes) {
        if (count_ == frames_.size()) return {};
        std::vector<std::uint8_t>& frame = frames_[(first_ + count_++) % frames_.size()];
        frame.assign(bytes < bytes_min ? bytes_min : bytes, 0);
        return {frame.data(), bytes};
    }
    std::span<const std::uint8_t> first() const {
        return count_ == 0 ? std::span<const std::uint8_t>{} : frames_[first_];
    }
    void remove_first() {
        first_ = (first_ + 1) % frames_.size();
        --count_;
    }

private:
    static constexpr std::size_t bytes_min = 60;  // IEEE 802.3: 64 with the check sequence

    std::array<std::vector<std::uint8_t>, Interface::own_frames_max> frames_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

}  // namespace dlcp::ipstack

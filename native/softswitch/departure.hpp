// A frame on its way out: its bytes, and when its turn on the line came.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softswitch/frame_pool.hpp"
#include "softswitch/time.hpp"

namespace dlcp::softswitch {

// Frames passed to an interface at once; also the most that may leave a port's queues and wait for sending.
inline constexpr std::size_t batch_frames = 64;

struct Departure {
    const std::uint8_t* data = nullptr;
    std::uint32_t bytes = 0;
    Slot slot = no_slot;
    Time at{};
};

}  // namespace dlcp::softswitch

// Time in the software switch: nanoseconds since a moment that does not change, so of CLOCK_MONOTONIC or a test's
// own.
//
// Only the loop and the ports read a clock (clock.hpp); the core is given the time.
#pragma once

#include <chrono>
#include <cstdint>

namespace dlcp::softswitch {

using Time = std::chrono::nanoseconds;

inline constexpr Time no_time = Time::max();  // later than anything: nothing is planned

// How long a line is busy with `bytes`.
inline Time transmit_time(std::uint64_t bytes, std::uint64_t rate_bps) {
    __extension__ using u128 = unsigned __int128;
    return Time{static_cast<std::int64_t>(u128{bytes} * 8'000'000'000U / rate_bps)};
}

// The same for one frame after another: what is less than a nanosecond, in parts of `rate_bps`, is kept in `rest` for the
// next. A frame of 88 bytes is 70.4 ns at 10 Gbit/s.
inline Time transmit_time(std::uint32_t bytes, std::uint64_t rate_bps, std::uint64_t& rest) {
    // 64 bits hold it up to 2 GB in a frame, and divide faster than 128.
    const std::uint64_t parts = bytes * 8'000'000'000U + rest;
    rest = parts % rate_bps;
    return Time{static_cast<std::int64_t>(parts / rate_bps)};
}

}  // namespace dlcp::softswitch

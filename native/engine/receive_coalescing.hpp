// How long what arrives may wait in the driver, as network cards wait before they interrupt.
//
// While a long message arrives nobody waits for the next of its packets, and each look at the driver costs a processor
// what a dozen packets do. So a driving thread naps until 32 KB have come. A nap takes no more than an eighth of the time
// that the message still needs. Where 32 KB come sooner than a nap is worth, each look finds many packets anyway. What
// else arrives is late by the nap, and so are acknowledgements: the sender's window, which grows until packets queue,
// makes up for these. Whoever exchanges data with ranks of its own host as well does not nap: those wait for each other.
//
// A value without clock or packets.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/run_length.hpp"
#include "engine/units.hpp"

namespace dlcp {

class ReceiveCoalescing {
public:
    // Payload of a message has been placed, of which so many bytes are still to come.
    void on_data(std::uint32_t bytes, std::uint32_t missing_bytes, bool by_channel) {
        bytes_ += bytes;
        missing_bytes_ = std::min(missing_bytes_, missing_bytes);
        by_channel_ |= by_channel;
    }
    // Of packets that were handled together. `receive_buffer`: what the driver holds meanwhile.
    void end_batch(Time now, Bytes receive_buffer) {
        if (bytes_ > 0) decide(now, receive_buffer);
        bytes_ = 0;
        missing_bytes_ = UINT32_MAX;
        by_channel_ = false;
    }
    Duration nap(Time now) const { return now < nap_until_ ? nap_ : Duration{0}; }

private:
    void decide(Time now, Bytes receive_buffer) {
        rate_.add(now, bytes_);
        if (by_channel_) awake_until_ = now + after_channel;
        nap_ = Duration{0};
        const std::uint64_t rate = rate_.bytes_in_run_time();
        if (rate == 0 || now < awake_until_) return;
        const auto time = [&](std::uint64_t bytes) {
            return Duration{static_cast<std::int64_t>(bytes * RecentRate::run_time.value / rate)};
        };
        const Duration left = time(missing_bytes_);
        nap_ = std::min({left / 8, time(std::min(bytes_meanwhile, receive_buffer.value / 8)), longest});
        if (nap_ < least) nap_ = Duration{0};
        nap_until_ = now + std::min(left / 2, longest * 4);  // a sender may fall silent
    }

    // All-reduces of 64 MB at 1 Gbit/s, 2 ranks, seconds of processor time a GB: without naps 2.7, of 100 us 2.7, of
    // 200 us 2.3, of 400 us 2.0, as long within a percent.
    static constexpr Duration least = microseconds(200), longest = microseconds(400);
    static constexpr std::uint64_t bytes_meanwhile = 32 * 1024;
    static constexpr Duration after_channel = milliseconds(10);

    RecentRate rate_;  // of what is placed
    // Of the batch under way.
    std::uint64_t bytes_ = 0;
    std::uint32_t missing_bytes_ = UINT32_MAX;
    bool by_channel_ = false;

    Duration nap_{0};
    Time nap_until_{INT64_MIN};
    Time awake_until_{INT64_MIN};
};

}  // namespace dlcp

// The processor's time stamp counter, for sections too short for a clock, and what is left of many of them when those in
// which the thread was interrupted are left out.
//
// The counter runs at a constant rate, whatever the core's own clock does (Intel SDM 3B, 18.17: invariant TSC), and
// goes on while the thread is not running: "cycles" are of this counter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "clock.hpp"

namespace dlcp::bench {

inline std::uint64_t read_cycles() {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    std::uint64_t value;
    asm volatile("isb; mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return static_cast<std::uint64_t>(wall_s() * 1e9);
#endif
}

// Counted over 20 ms, once.
inline double cycles_per_second() {
    static const double rate = [] {
        const double start_s = wall_s();
        const std::uint64_t start = read_cycles();
        while (wall_s() < start_s + 0.02) {}
        return static_cast<double>(read_cycles() - start) / (wall_s() - start_s);
    }();
    return rate;
}

// Cycles of many slices of like work, each over a number of packets.
class Slices {
public:
    explicit Slices(std::size_t expected = 1 << 16) { slices_.reserve(expected); }
    void add(std::uint64_t cycles, std::uint64_t packets) {
        slices_.push_back({static_cast<std::uint32_t>(std::min<std::uint64_t>(cycles, UINT32_MAX)),
                           static_cast<std::uint32_t>(packets)});
    }
    void clear() { slices_.clear(); }
    std::uint64_t packets() const {
        std::uint64_t sum = 0;
        for (const Slice& slice : slices_) sum += slice.packets;
        return sum;
    }
    // A slice was interrupted if it took 8 times the median per packet, and longer than any interrupt takes: work may come
    // in lumps, and a thread that lost the processor lost it for longer.
    double cycles_per_packet() const {
        std::vector<double> each;
        for (const Slice& slice : slices_)
            if (slice.packets > 0) each.push_back(static_cast<double>(slice.cycles) / slice.packets);
        if (each.empty()) return 0;
        std::nth_element(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2), each.end());
        const double limit = 8 * each[each.size() / 2], interrupt = interrupt_s * cycles_per_second();
        double cycles = 0, packets = 0;
        for (const Slice& slice : slices_) {
            if (slice.packets == 0 || (slice.cycles > interrupt && slice.cycles > limit * slice.packets)) continue;
            cycles += slice.cycles;
            packets += slice.packets;
        }
        return packets > 0 ? cycles / packets : 0;
    }

private:
    static constexpr double interrupt_s = 100e-6;
    struct Slice {
        std::uint32_t cycles, packets;
    };
    std::vector<Slice> slices_;
};

}  // namespace dlcp::bench

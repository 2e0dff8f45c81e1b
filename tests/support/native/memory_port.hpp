// A port for tests: tests put in frames with their arrival times, and read what was sent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "softswitch/port.hpp"

namespace dlcp::softswitch {

class MemoryPort : public Port {
public:
    struct Sent {
        std::vector<std::uint8_t> bytes;
        Time at;
    };

    explicit MemoryPort(std::uint32_t frame_bytes = 1518) : frame_bytes_(frame_bytes) {}

    void put(std::vector<std::uint8_t> bytes, Time at) { coming_.push_back({std::move(bytes), at}); }
    // From now on accepts this many frames, then is blocked; SIZE_MAX: any number.
    void take(std::size_t frames) { room_ = frames; }
    std::vector<Sent>& sent() { return sent_; }

    std::span<const Arrival> receive(Time now) override {
        arrivals_.clear();
        for (auto& [bytes, at] : coming_) {
            if (at > now || arrivals_.size() == batch_frames) break;
            arrivals_.push_back({bytes, at});
        }
        return arrivals_;
    }
    void release() override {
        coming_.erase(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(arrivals_.size()));
        arrivals_.clear();
    }
    std::size_t send(std::span<const Departure> frames) override {
        const std::size_t count = std::min(room_, frames.size());
        for (const Departure& frame : frames.first(count))
            sent_.push_back({std::vector<std::uint8_t>(frame.data, frame.data + frame.bytes), frame.at});
        if (room_ != SIZE_MAX) room_ -= count;
        return count;
    }
    int descriptor() const override { return -1; }
    bool link() const override { return true; }
    std::uint32_t frame_bytes() const override { return frame_bytes_; }
    PortStatistics statistics() override { return {}; }

private:
    struct Coming {
        std::vector<std::uint8_t> bytes;
        Time at;
    };

    std::uint32_t frame_bytes_;
    std::size_t room_ = SIZE_MAX;
    std::deque<Coming> coming_;
    std::vector<Arrival> arrivals_;
    std::vector<Sent> sent_;
};

}  // namespace dlcp::softswitch

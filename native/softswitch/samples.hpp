// Depths over time: every so often, what waits in each class of each port and what has left and been dropped so far.
//
// A ring of fixed size: the oldest go when it is full. Samples are numbered from 0, so a reader sees what it missed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "softswitch/time.hpp"
#include "switch/policy.hpp"

namespace dlcp::softswitch {

struct Sample {
    std::uint64_t index = 0;
    Time at{};
    std::uint32_t port = 0;
    std::array<std::uint32_t, switching::traffic_classes> waiting_bytes{};
    std::array<std::uint64_t, switching::traffic_classes> sent_packets{};
    std::array<std::uint64_t, switching::traffic_classes> dropped_packets{};
};

class Samples {
public:
    explicit Samples(std::size_t capacity) : capacity_(capacity) {}

    // From `now` on, every `interval`; zero: no more.
    void start(Time now, Time interval) {
        interval_ = interval;
        next_ = interval == Time{} ? no_time : now + interval;
        if (interval != Time{}) ring_.reserve(capacity_);
    }
    Time next() const { return next_; }
    // Skips samples that would be overwritten before `now`: a loop that was stopped for an hour does not catch up.
    void skip_before(Time now) {
        if (now <= next_) return;
        const auto behind = (now - next_) / interval_;
        const auto most = static_cast<Time::rep>(capacity_);
        if (behind > most) next_ += (behind - most) * interval_;
    }
    void taken() { next_ += interval_; }

    void add(Sample sample) {
        sample.index = count_++;
        if (ring_.size() < capacity_)
            ring_.push_back(sample);
        else
            ring_[sample.index % capacity_] = sample;
    }

    // Those from number `first` on that are still there, oldest first; at most `most`.
    std::vector<Sample> since(std::uint64_t first, std::size_t most) const {
        std::vector<Sample> out;
        const std::uint64_t oldest = count_ - ring_.size();
        for (std::uint64_t i = first < oldest ? oldest : first; i < count_ && out.size() < most; ++i)
            out.push_back(ring_[i % capacity_]);
        return out;
    }

private:
    std::size_t capacity_;
    std::vector<Sample> ring_;
    std::uint64_t count_ = 0;
    Time interval_{};
    Time next_ = no_time;
};

}  // namespace dlcp::softswitch

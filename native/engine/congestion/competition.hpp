// A window that holds its own beside senders that answer loss alone, such as TCP CUBIC, or hardly that, such as BBR.
//
// A sender that answers delay yields to them until nothing is left. Such rivals show: the delay stays while the own window
// falls, round after round. The window then grows and shrinks as CUBIC's (RFC 9438) until a round sees the queue below
// half the delay's target, or for `turn` at most. After that the delay's rule has its chance again, because senders of
// this kind alone would keep the buffer full for each other. Copa (NSDI'18, section 2.2) has the same two modes and tells
// them apart by whether the queue empties. None of this happens where a switch marks or trims, which all senders answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/units.hpp"

namespace dlcp {

class Competition {
public:
    explicit Competition(std::uint16_t packet_bytes) : packet_(packet_bytes) {}

    bool on() const { return on_; }
    // The delay's rule goes on.
    void stop() { on_ = false; }

    // A round in which the delay's rule shrank the window is over: bytes before it and after. Returns the window: as the
    // rule made it, or, where yielding has no effect, what it was before.
    std::int64_t yielded(Time now, Duration delay, std::int64_t before, std::int64_t after) {
        if (rounds_ == 0 || delay < held_delay_ * 9 / 10) {
            held_delay_ = delay;
            held_window_ = before;
            rounds_ = 0;
        }
        if (++rounds_ < rounds_yielded || 2 * after >= held_window_) return after;
        on_ = true;
        end_ = now + turn;
        longest_ = delay;
        cut_ = false;
        rounds_ = 0;
        begin_epoch(now, held_window_, held_window_);
        return held_window_;
    }
    // A round in which it did not.
    void not_yielded() { rounds_ = 0; }

    struct Round {
        Time now{0};
        Duration least{0}, median{0};  // queueing delay
        Duration target{0};            // of the delay's rule
        Duration rtt{0};
        bool lost = false;
        bool lossy = false;    // more than chance loses
        bool limited = false;  // by the window, not the application
    };
    // A round in competition is over. Returns the window; on() says whether competition goes on.
    std::int64_t end_round(const Round& round, std::int64_t window) {
        if (round.least < round.target / 2 || round.now >= end_) {
            on_ = false;
            return window;
        }
        const Duration length = round.now - last_round_;
        last_round_ = round.now;
        longest_ = std::max(longest_, round.median);
        // Loss before a full buffer, or much of it. What left before the last cut was part of the same event.
        const bool cuts = round.lossy || (round.lost && round.median >= longest_ * 3 / 4);
        const bool same_event = std::exchange(cut_, false);
        if (cuts && same_event) return window;
        if (cuts) {
            cut_ = true;
            // Fast convergence: who loses below its last maximum makes room.
            const std::int64_t most = window < most_ ? window * (10 + kept_tenths) / 20 : window;
            window = window * kept_tenths / 10;
            begin_epoch(round.now, most, window);
            longest_ = round.median;
            return window;
        }
        // The curve waits while nothing is tried.
        epoch_ = epoch_ + (round.limited ? std::max(length - round.rtt * 2, Duration{0}) : length);
        if (!round.limited) return window;
        reno_ += packet_ * 9 / 17;
        // At most half as much again in a round trip.
        return std::clamp(std::max(curve(round.now + round.rtt), reno_), window, window * 3 / 2);
    }

    // Every round that the window limits and in which packets queue. A window alone on its link gets the same rate
    // whatever its size, for the queue is its own; one beside others that do not yield gets a rate that follows it. The
    // elasticity, (dr / r) / (dw / w), is their share of what is on the way.
    void note_rate(Time now, std::int64_t window, Bytes acked, Duration length) {
        if (length.value <= 0) return;
        const double rate = static_cast<double>(acked.value) / static_cast<double>(length.value);
        noted_ = std::min(noted_ + 1, rounds_noted);
        const double gain = 1.0 / noted_;
        const double of_window = static_cast<double>(window) - window_mean_;
        const double of_rate = rate - rate_mean_;
        window_mean_ += gain * of_window;
        rate_mean_ += gain * of_rate;
        variance_ = (1 - gain) * (variance_ + gain * of_window * of_window);
        covariance_ = (1 - gain) * (covariance_ + gain * of_window * of_rate);
        // Windows that hardly differ tell nothing.
        if (noted_ < rounds_noted || variance_ * 100 < window_mean_ * window_mean_) return;
        const bool follows = covariance_ * window_mean_ > least_elasticity * variance_ * rate_mean_;
        outweighed_until_ = follows ? now + turn : now;
    }
    // Others hold a good part of the queue, whatever this window does. It ends with its turn unless it is seen again.
    bool outweighed(Time now) const { return now < outweighed_until_; }

private:
    // Moving averages over so many rounds.
    static constexpr int rounds_noted = 32;
    // Beside one CUBIC connection 0.35 to 0.6 were measured (50 Mbit/s).
    static constexpr double least_elasticity = 0.33;
    // Round trips of yielding without effect. What was sent before the first cut arrives in the second, and what a
    // sender that still doubled had sent makes that one's queue longer.
    static constexpr int rounds_yielded = 5;
    static constexpr Duration turn = seconds(20);
    // RFC 9438, sections 4.1 and 4.6: C = 0.4 packets per s^3, beta = 0.7; a Reno-friendly window then grows by 9/17 of a
    // packet in a round trip (section 4.3).
    static constexpr std::int64_t kept_tenths = 7;
    static constexpr std::int64_t curve_ms_max = 40'000;  // twice the turn

    static std::int64_t milliseconds_of(Duration duration) { return duration.value / 1'000'000; }

    // The largest integer of which the cube is no more.
    static std::int64_t cube_root(std::int64_t value) {
        std::int64_t root = 0;
        for (std::int64_t bit = std::int64_t{1} << 20; bit != 0; bit /= 2)
            if ((root + bit) * (root + bit) * (root + bit) <= value) root += bit;
        return root;
    }
    void begin_epoch(Time now, std::int64_t most, std::int64_t window) {
        epoch_ = last_round_ = now;
        most_ = most;
        reno_ = window;
        // (most - 0.7 most) / C, in packets and ms^3: the curve begins at 0.7 most, and a window above it waits.
        peak_ms_ = cube_root(most / packet_ * 750'000'000);
    }
    std::int64_t curve(Time at) const {
        const std::int64_t past_ms = std::min(milliseconds_of(at - epoch_) - peak_ms_, curve_ms_max);
        return most_ + past_ms * past_ms * past_ms / 25'000 * packet_ / 100'000;
    }

    std::int64_t packet_;  // bytes
    // Of windows, in bytes, and rates, in bytes per ns.
    int noted_ = 0;
    double window_mean_ = 0;
    double rate_mean_ = 0;
    double variance_ = 0;
    double covariance_ = 0;
    Time outweighed_until_{INT64_MIN / 2};
    bool on_ = false;
    Time end_{0};
    // Yielding: rounds in a row, and the delay and the window when they began.
    int rounds_ = 0;
    Duration held_delay_{0};
    std::int64_t held_window_ = 0;
    // CUBIC's curve: when it began, the window where it is flat, and after how long; beside it Reno's line.
    Time epoch_{0};
    Time last_round_{0};
    std::int64_t most_ = 0;
    std::int64_t peak_ms_ = 0;
    std::int64_t reno_ = 0;
    Duration longest_{0};  // median delay since the last cut: a full buffer
    bool cut_ = false;     // in the last round
};

}  // namespace dlcp

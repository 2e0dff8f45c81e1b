// A window that holds its own beside senders that answer loss alone, such as TCP CUBIC.
//
// Who answers delay yields to them until nothing is left: they fill the buffer. It shows: the delay stays where it was
// while the own window falls, round after round. From then on the window grows and shrinks as CUBIC's (RFC 9438), until
// a round has seen the queue nearly empty, or for `turn`: then the delay's rule has its chance again, since senders of
// this kind alone would keep the buffer full for each other (Copa, NSDI'18 section 2.2, has the two modes and tells them
// apart by the queue's emptying). A switch that marks speaks to all, and none of this happens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/units.hpp"

namespace dlcp {

class Competition {
public:
    explicit Competition(std::uint16_t packet_bytes) : packet_(packet_bytes) {}

    bool on() const { return on_; }
    // Switches mark: the delay's rule goes on.
    void stop() { on_ = false; }

    // A round in which the delay's rule shrank the window is over: bytes before it and after. Returns the window: as the
    // rule made it, or, where yielding has no effect, what it was before.
    std::int64_t yielded(Time now, Duration delay, std::int64_t before, std::int64_t after) {
        if (rounds_ == 0 || delay < held_delay_ * 9 / 10) {
            held_delay_ = delay;
            held_window_ = before;
            rounds_ = 0;
        }
        if (++rounds_ < rounds_yielded || 2 * after > held_window_) return after;
        on_ = true;
        end_ = now + turn;
        longest_ = delay;
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
        bool limited = false;  // by the window, not the application
    };
    // A round in competition is over. Returns the window; on() says whether competition goes on.
    std::int64_t end_round(const Round& round, std::int64_t window) {
        if (round.least < round.target / 2 || round.now >= end_) {
            on_ = false;
            return window;
        }
        longest_ = std::max(longest_, round.median);
        if (round.lost && round.median >= longest_ * 3 / 4) {
            // Fast convergence: who loses below its last maximum makes room.
            const std::int64_t most = window < most_ ? window * 17 / 20 : window;
            window = window * 7 / 10;
            begin_epoch(round.now, most, window);
            return window;
        }
        if (!round.limited) {
            epoch_ = epoch_ + round.rtt;  // nothing was tried: the curve waits
            return window;
        }
        reno_ += reno_packets * packet_;
        const double past_s = seconds_of(round.now + round.rtt - epoch_) - peak_s_;
        const double cubic = static_cast<double>(most_) + cubic_factor * past_s * past_s * past_s * packet_;
        // At most half as much again in a round trip.
        return std::clamp(static_cast<std::int64_t>(std::max(cubic, reno_)), window, window * 3 / 2);
    }

private:
    // Round trips of yielding without effect. What was sent before the first cut arrives in the second, and what a
    // sender that still doubled had sent makes that one's queue longer.
    static constexpr int rounds_yielded = 5;
    static constexpr Duration turn = seconds(20);
    // RFC 9438, sections 4.1, 4.3 and 4.6: C, beta, and packets that a Reno-friendly window grows in a round trip.
    static constexpr double cubic_factor = 0.4;
    static constexpr double kept = 0.7;
    static constexpr double reno_packets = 3.0 * (1 - kept) / (1 + kept);

    static double seconds_of(Duration duration) { return static_cast<double>(duration.value) / 1e9; }

    void begin_epoch(Time now, std::int64_t most, std::int64_t window) {
        epoch_ = now;
        most_ = most;
        reno_ = static_cast<double>(window);
        peak_s_ = std::cbrt(static_cast<double>(most) / packet_ * (1 - kept) / cubic_factor);
    }

    double packet_;  // bytes
    bool on_ = false;
    Time end_{0};
    // Yielding: rounds in a row, and the delay and the window when they began.
    int rounds_ = 0;
    Duration held_delay_{0};
    std::int64_t held_window_ = 0;
    // CUBIC's curve: when it began, the window where it is flat, and after how long; beside it Reno's line.
    Time epoch_{0};
    std::int64_t most_ = 0;
    double peak_s_ = 0;
    double reno_ = 0;
    Duration longest_{0};  // median delay in this competition: a full buffer
};

}  // namespace dlcp

// A window controlled by ECN marks and median delay, in the line of UET's NSCC and Swift. One window per peer, shared
// by all paths.
//
// The target is that of the peer's path: three quarters of its base round trip (NSCC), but not below the setting. Where
// the line's rate is known the first window is one and a half bandwidth-delay products of that path; elsewhere it
// doubles each round trip until there is a queue.
//
// Once per round trip:
// - The marked share F moves an average a (DCTCP, RFC 8257 section 3.3, g = 1/16); if packets were marked the window
// shrinks by a/2. Marks without a queue, below three quarters of the base round trip, are those of single paths: the
// path set answers them, and the window stays (NSCC).
// - Otherwise a median queueing delay above the target shrinks it by 0.8 x the excess's share of the round trip, at
// most by half (after Swift, SIGCOMM'20 section 3.3).
// - Otherwise it grows by a packet, and by up to a sixteenth of itself the further the delay is below half the target.
// Two rounds in a row without a queue make it grow by a quarter if the line's rate bounds it: others have left. So a
// free link is filled within a few round trips, while equal flows converge through the constant term.
// The median of a round is used, not the last sample: with spraying the last sample is that of one path (MSwift, arXiv
// 2509.07907).
//
// If a full window loses more than a tenth, some of it trimmed, or more than half while packets queue above the target
// or most are marked, it becomes what got through ("quick adapt" of UET's NSCC). The first windows of an incast are too
// large by a factor of the number of senders; stepwise reduction would refill the buffer each time. It is judged over a
// base round trip and the target, which is how long packets stand in queues: answers about trimmed packets overtake
// those about packets that wait, and a round that they end has hardly begun.
//
// Where yielding to a queue has no effect, others fill it, and the window competes with them (competition.hpp). Where
// several of our own sessions meet it never does: the queue may be theirs.
//
// Loss alone is not congestion here. Without a queue, up to 2 % per round is ignored (random loss on Ethernet, and
// losses that the path set answers by leaving a path). Above that the window shrinks by the lost share, which protects
// a shallow-buffered network without marks from collapse.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "engine/config.hpp"
#include "engine/congestion/competition.hpp"
#include "engine/congestion/controllers.hpp"

namespace dlcp {
namespace {

class WindowControl final : public CongestionControl {
public:
    WindowControl(const EndpointConfig& config, std::uint16_t datagram_bytes, Duration base_rtt)
        : least_target_(config.target_delay),
          target_(config.target_delay),
          datagram_(datagram_bytes),
          competition_(datagram_bytes),
          initial_window_(static_cast<std::int64_t>(config.initial_window.value)),
          window_(initial_window_),
          max_window_(static_cast<std::int64_t>(config.max_window.value)),
          line_rate_(config.line_rate) {
        if (base_rtt.value > 0) set_base_rtt(base_rtt);
    }

    void on_ack(const AckSample& s) override {
        if (s.base_rtt.value > 0) set_base_rtt(s.base_rtt);
        round_acked_ += static_cast<std::int64_t>(s.acked.value);
        round_lost_ += static_cast<std::int64_t>(s.lost.value);
        round_packets_ += s.acked_packets;
        round_ce_ += s.ce_packets;
        if (s.queue_delay.value >= 0 && samples_ < delays_.size()) delays_[samples_++] = s.queue_delay;
        rtt_ = s.rtt;
        alone_ = s.alone;
        if (s.ce_packets > 0 || s.trimmed) spoke_until_ = s.now + spoken_for;
        limited_ |= is_full(s);

        adapt(s);
        if (slow_start_) {
            if (limited_) window_ += static_cast<std::int64_t>(s.acked.value);
            if (s.ce_packets > 0) slow_start_ = false;
        }
        if (s.round_over) end_round(s.now);
        clamp();
    }

    void on_timeout(std::uint32_t timeouts) override {
        // One unanswered probe may be the loss of the probe itself; after two the network has changed.
        if (timeouts == 2) {
            window_ /= 2;
            slow_start_ = true;
            competition_.stop();
            clamp();
        }
    }

    // The receiver has made room on the last hop, or more of it: the window grows by that, and is judged by what leaves
    // from now on.
    void begin_turn(Time now, Bytes turn) override {
        // Off the wire: any number.
        const auto room = static_cast<std::int64_t>(std::min(turn.value, static_cast<std::uint64_t>(max_window_)));
        if (before_turn_) {  // never above the turn, or windows that turns hold back would grow with each
            window_ = std::max(window_, std::min(window_ + std::max<std::int64_t>(room - turn_, 0), room));
        } else {
            before_turn_ = window_;
            slow_start_ = false;
            if (room > window_) {
                window_ = room;
                const Duration length = base_rtt_ + target_;
                settled_at_ = now + length;
                period_ = {};
                period_.end = now + length;
            }
        }
        turn_ = std::max(turn_, room);
        clamp();
    }
    // A turn's window may be too large beside other senders. A sender that goes on without turns is alone.
    void end_turn(bool goes_on) override {
        if (before_turn_ && !goes_on) window_ = std::min(window_, *before_turn_);
        before_turn_.reset();
        turn_ = 0;
    }

    Bytes window() const override { return {static_cast<std::uint64_t>(window_)}; }

    Rate pacing_rate(Duration rtt) const override {
        if (rtt.value <= 0) return line_rate_;
        // 1.25: slightly above window/rtt, so that pacing is never the limit; 2 while searching.
        const Rate rate =
            rate_of({static_cast<std::uint64_t>(slow_start_ ? window_ * 2 : window_ + window_ / 4)}, rtt);
        return line_rate_.value_bps != 0 ? std::min(rate, line_rate_) : rate;
    }

private:
    void set_base_rtt(Duration base_rtt) {
        if (first_round_ && base_rtt != base_rtt_ && line_rate_.value_bps != 0) {
            // The handshake's answer may have waited at the peer: what the first packets measure corrects the window.
            const double product =
                static_cast<double>(line_rate_.value_bps) / 8e9 * static_cast<double>(base_rtt.value);
            window_ = std::max(initial_window_, static_cast<std::int64_t>(1.5 * product));
            clamp();
        }
        base_rtt_ = base_rtt;
        target_ = std::max(least_target_, base_rtt * 3 / 4);
    }
    // Quick adapt: counts what got through and what did not, and at the end of a period takes the one for the window.
    void adapt(const AckSample& s) {
        const Duration length = std::max(s.base_rtt + target_, s.rtt);
        // The first answers long after a period are not those of a whole one.
        if (s.now - period_.end > length) {
            period_ = {};
            period_.end = s.now + length;
        }
        period_.end = std::min(period_.end, s.now + length);  // the round trip may have been overestimated
        period_.acked += static_cast<std::int64_t>(s.acked.value);
        period_.lost += static_cast<std::int64_t>(s.lost.value);
        period_.packets += s.acked_packets;
        period_.ce_packets += s.ce_packets;
        period_.above_target |= s.queue_delay > target_;
        period_.trimmed |= s.trimmed;
        period_.limited |= is_full(s);
        if (s.now < period_.end) return;
        const std::int64_t total = period_.acked + period_.lost;
        const bool overflowed = 2 * period_.ce_packets > period_.packets || period_.above_target;
        const bool mostly_lost =
            overflowed && 2 * period_.lost > total && period_.lost > few_packets * std::int64_t{datagram_};
        const bool lost_too_much = mostly_lost || (period_.trimmed && 10 * period_.lost > total);
        if (lost_too_much && period_.limited && period_.acked < window_) {
            window_ = period_.acked;
            slow_start_ = false;
            competition_.stop();
            settled_at_ = s.now + length;
        }
        period_ = {};
        period_.end = s.now + length;
    }
    bool is_full(const AckSample& s) const { return static_cast<std::int64_t>(s.in_flight.value) * 2 > window_; }

    void end_round(Time now) {
        Duration delay{-1};
        Duration least{-1};
        if (samples_ > 0) {
            auto middle = delays_.begin() + static_cast<std::ptrdiff_t>(samples_ / 2);
            std::nth_element(delays_.begin(), middle, delays_.begin() + static_cast<std::ptrdiff_t>(samples_));
            delay = *middle;
            least = *std::min_element(delays_.begin(), middle + 1);
        }
        // A small window tolerates more queue than a large one, so that flows sharing a queue converge (Swift section
        // 3.3, flow scaling): twice the target at 16 packets and fewer, 1.4 times at 100.
        const double packets = std::max(16.0, static_cast<double>(window_) / datagram_);
        const Duration target{target_.value + static_cast<std::int64_t>(static_cast<double>(target_.value) * 4.0 /
                                                                        std::sqrt(packets))};
        // Averages in 2^-16.
        const std::int64_t marked = round_packets_ > 0 ? (std::int64_t{round_ce_} << 16) / round_packets_ : 0;
        mark_average_ += (marked - mark_average_) / 16;
        const std::int64_t total = round_acked_ + round_lost_;
        const std::int64_t lost = total > 0 ? (round_lost_ << 16) / total : 0;
        const bool lossy = lost > loss_ignored && round_lost_ > few_packets * std::int64_t{datagram_};
        const bool no_queue = delay.value >= 0 && delay < target_ / 8 && round_ce_ == 0 && round_lost_ == 0;
        const bool marks_without_queue = delay.value >= 0 && delay < base_rtt_ * 3 / 4;

        // Switches that mark or trim say when a queue is too long; where none does, others may hold it.
        const bool network_speaks = now < spoke_until_;
        const std::int64_t before = window_;
        bool yielded = false;

        // Where the line's rate is known the fabric is this job's.
        const bool may_hold = alone_ && !network_speaks && line_rate_.value_bps == 0;
        if (limited_ && may_hold && delay > target_ / 2)
            competition_.note_rate(now, window_, Bytes{static_cast<std::uint64_t>(round_acked_)},
                                   now - round_began_);
        round_began_ = now;
        // What a kernel's TCP keeps in its own host's queue, whatever the delay, is about as much.
        const std::int64_t held = may_hold && competition_.outweighed(now) ? 2 * initial_window_ : 0;
        if (network_speaks) competition_.stop();
        if (competition_.on()) {
            if (samples_ > 0)
                window_ = competition_.end_round({.now = now,
                                                  .least = least,
                                                  .median = delay,
                                                  .target = target_,
                                                  .rtt = rtt_,
                                                  .lost = round_lost_ > 0,
                                                  .lossy = lossy,
                                                  .limited = limited_},
                                                 window_);
        } else if (now < settled_at_) {
            // These answers are about what was in flight when the window was adapted.
        } else if (round_ce_ > 0 && !marks_without_queue) {
            mark_average_ = std::max(mark_average_, marked / 16);
            window_ -= window_ * mark_average_ / (2 << 16);
            slow_start_ = false;
        } else if (delay > target && window_ <= held) {
            if (limited_) window_ += datagram_;
            slow_start_ = false;
        } else if (delay > target) {
            // The excess's share of the round trip. The round trip also contains the queue of the other direction, in
            // which acknowledgements wait; that queue is not part of this direction's excess.
            const std::int64_t excess = (delay - target).value;
            window_ -= std::min(window_ / 2, window_ / 10 * 8 * excess / std::max(delay.value, rtt_.value));
            window_ = std::max(window_, held);
            slow_start_ = false;
            yielded = limited_ && alone_ && !network_speaks;
        } else if (round_lost_ > 0 && delay * 4 > target_) {
            // Loss with a queue before it may mean a full buffer smaller than the target: reduce, as senders with more
            // loss do. 0.7 is CUBIC's factor (RFC 9438 section 4.6). A stray loss says little, and reducing costs
            // double where data flows both ways through plain queues: acknowledgements wait behind the other side's
            // data, so the smaller window gets the link only in proportion to the two windows. 3 % instead of 15 %
            // raised an all-reduce at 1 % random loss from 0.87 to 0.92 of its link (1 Gbit/s, 1 MB queue, virtual
            // time).
            window_ -= window_ * (lossy ? 30 : 3) / 100;
            slow_start_ = false;
        } else if (lossy) {
            window_ -= std::min(window_ / 2, (window_ * lost) >> 16);
            slow_start_ = false;
        } else if (round_ce_ > 0) {
            slow_start_ = false;
        } else if (limited_ && !slow_start_) {
            // One packet, as DCTCP does: at 200 Mbit/s eight packets are half the target. With eight, 4 ranks that send
            // both ways through plain queues reached 0.79 of 200 Mbit/s in a ring, and 0.34 in an all-to-all with one
            // link at half rate. With one packet: 0.91 and 0.41; at 1 Gbit/s 0.88 and 0.95, at 10 Gbit/s the same
            // (virtual time).
            window_ += datagram_;
            if (no_queue && had_no_queue_ && line_rate_.value_bps != 0) window_ += window_ / 4;
            // Only while the queue is less than half full. Near the target the constant term acts alone; otherwise
            // flows that share a queue would keep their initial shares.
            const std::int64_t half = target.value / 2;
            if (delay.value >= 0 && delay.value < half) window_ += window_ / 16 * (half - delay.value) / half;
        }
        clamp();
        if (yielded && window_ < before)
            window_ = competition_.yielded(now, delay, before, window_);
        else
            competition_.not_yielded();
        had_no_queue_ = no_queue;
        if (round_acked_ > 0) first_round_ = false;
        round_acked_ = round_lost_ = 0;
        round_packets_ = round_ce_ = 0;
        samples_ = 0;
        limited_ = false;
    }
    void clamp() {
        // What is in flight in a turn says nothing of more.
        if (before_turn_) window_ = std::min(window_, std::max(*before_turn_, turn_));
        window_ = std::clamp(window_, 2 * std::int64_t{datagram_}, max_window_);
    }

    // A switch that has marked or trimmed is counted on for so long.
    static constexpr Duration spoken_for = seconds(20);
    static constexpr std::int64_t loss_ignored = (1 << 16) / 50;
    // A share of so few packets means little: three of a hundred may be chance, and so may three of four.
    static constexpr std::int64_t few_packets = 4;

    // What quick adapt has seen since it last judged.
    struct Period {
        Time end{INT64_MIN / 2};
        std::int64_t acked = 0;
        std::int64_t lost = 0;
        std::uint32_t packets = 0;
        std::uint32_t ce_packets = 0;
        bool above_target = false;
        bool trimmed = false;
        bool limited = false;  // the window was, not the application
    };

    Duration least_target_;
    Duration target_;
    Duration base_rtt_{0};
    Duration rtt_{0};  // smoothed
    std::uint16_t datagram_;
    Competition competition_;
    std::int64_t initial_window_;
    std::int64_t window_;
    std::int64_t max_window_;
    std::optional<std::int64_t> before_turn_;  // the window, if a turn has raised it
    std::int64_t turn_ = 0;                    // the most that it allowed
    Rate line_rate_;
    bool alone_ = false;
    Time spoke_until_{INT64_MIN / 2};
    bool slow_start_ = true;
    bool limited_ = false;       // the window, not the application, limited this round
    bool had_no_queue_ = false;  // in the last round
    Period period_;
    Time settled_at_{INT64_MIN / 2};  // until then answers are about what left before the last quick adapt
    bool first_round_ = true;
    std::int64_t mark_average_ = 0;
    Time round_began_{0};
    std::int64_t round_acked_ = 0;
    std::int64_t round_lost_ = 0;
    std::uint32_t round_packets_ = 0;
    std::uint32_t round_ce_ = 0;
    std::size_t samples_ = 0;
    std::array<Duration, 32> delays_{};
};

}  // namespace

std::unique_ptr<CongestionControl> make_window_control(const EndpointConfig& config, std::uint16_t datagram_bytes,
                                                       Duration base_rtt) {
    return std::make_unique<WindowControl>(config, datagram_bytes, base_rtt);
}

}  // namespace dlcp

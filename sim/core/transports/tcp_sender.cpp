// Scoreboard, loss detection, recovery and timers; see tcp_sender.hpp.
#include "sim/core/transports/tcp_sender.hpp"

#include <algorithm>
#include <cmath>

namespace dlcp::sim {
namespace {

constexpr std::uint32_t duplicate_threshold = 3;   // RFC 5681 §3.2: DupThresh
constexpr std::uint32_t reorder_persistence = 16;  // recoveries (RFC 8985 §6.2, RACK.reo_wnd_persist)
constexpr std::uint32_t most_reorder_quarters = 256;
constexpr std::uint32_t most_backoff = 16;  // doublings; max_rto_ps binds before

}  // namespace

void TcpPath::start_rtt(std::int64_t rtt_ps) {
    srtt_ps = rtt_ps;
    rttvar_ps = rtt_ps / 2;  // RFC 6298 §2.2
    min_rtt_ps = std::min(min_rtt_ps, rtt_ps);
}

// --- sending ---

bool TcpSender::can_send() const {
    if (done()) return false;
    if (probe_due_) return true;
    if (lost_ == 0 && nxt_ == segments_) return false;
    return in_flight_ < std::max(1.0, std::floor(window_packets()));
}

std::uint32_t TcpSender::next_segment(std::int64_t now_ps) {
    paced_ = false;
    if (!can_send()) return none;
    if (settings_->pacing && now_ps < pace_ps_ && !probe_due_) {
        paced_ = true;
        return none;
    }
    std::uint32_t number = none;
    bool again = false;
    if (probe_due_) {
        // New data if there is any, the last segment otherwise (RFC 8985 §7.3); the window does not bind it.
        probe_due_ = false;
        again = nxt_ == segments_;
        number = again ? nxt_ - 1 : nxt_;
        if (again && at(number).lost) return next_segment(now_ps);  // in a recovery of its own by now
        probe_again_ = again;
        probe_end_ = again ? nxt_ : nxt_ + 1;
        probe_sent_ps_ = now_ps;
        ++probes_;
        rto_base_ps_ = now_ps;
    } else {
        while (!resend_.empty()) {
            const std::uint32_t first = resend_.front();
            resend_.pop();
            if (first >= una_ && at(first).lost) {
                number = first;
                break;
            }
        }
        again = number != none;
        if (!again) {
            if (nxt_ == segments_) return none;
            number = nxt_;
        }
    }
    transmit(now_ps, number, again);
    return number;
}

void TcpSender::transmit(std::int64_t now_ps, std::uint32_t number, bool again) {
    // RFC 6298 §5.1; as in Linux also when the oldest segment leaves again.
    if (una_ == nxt_ || number == una_) rto_base_ps_ = now_ps;
    if (!again) {
        if (nxt_ - una_ >= ring_.size()) {
            std::vector<Segment> wider(ring_.empty() ? 16 : ring_.size() * 2);
            for (std::uint32_t i = una_; i < nxt_; ++i) wider[i & (wider.size() - 1)] = at(i);
            ring_.swap(wider);
        }
        at(number) = Segment{};
        ++nxt_;
        ++in_flight_;
        probe_base_ps_ = now_ps;
    } else {
        Segment& segment = at(number);
        if (segment.lost) {
            segment.lost = 0;
            --lost_;
            ++in_flight_;
        }
        segment.retransmitted = 1;
        if (state_ != State::open && first_resent_ps_ < 0) first_resent_ps_ = now_ps;
        resent_end_ = std::max(resent_end_, number + 1);
    }
    Segment& segment = at(number);
    segment.sent_ps = now_ps;
    segment.transmission = ++transmissions_;
    order_.push({number, transmissions_});
    retransmitted_ = again;
    if (state_ == State::recovery) ++recovery_sent_;
    round_flight_ = std::max(round_flight_, in_flight_);
    if (settings_->pacing) pace(now_ps);
}

void TcpSender::pace(std::int64_t now_ps) {
    const bool slow = path_.window.packets() < path_.window.threshold() / 2;
    const double per_rtt =
        std::max(1.0, window_packets()) * (slow ? settings_->pacing_slow_start : settings_->pacing_avoidance);
    pace_ps_ =
        std::max(pace_ps_, now_ps) + static_cast<std::int64_t>(static_cast<double>(path_.srtt_ps) / per_rtt);
}

// --- acknowledgements ---

// Sacked runs are skipped by links that shorten as they are followed.
std::uint32_t TcpSender::first_unsacked(std::uint32_t number) {
    while (number < nxt_ && at(number).sacked) {
        Segment& segment = at(number);
        const std::uint32_t next = segment.skip;
        if (next < nxt_ && at(next).sacked) segment.skip = at(next).skip;
        number = next;
    }
    return number;
}

// `echo_ps`: the timestamp that was echoed for it, if one was.
void TcpSender::deliver(std::int64_t now_ps, std::uint32_t number, std::int64_t echo_ps) {
    Segment& segment = at(number);
    ++delivered_;
    --(segment.lost ? lost_ : in_flight_);
    segment.lost = 0;
    const std::int64_t rtt_ps = now_ps - segment.sent_ps;
    if (!segment.retransmitted) {
        if (first_rtt_ps_ < 0) first_rtt_ps_ = rtt_ps;
        last_rtt_ps_ = rtt_ps;
        if (number + 1 < forward_before_) path_.reordering = true;  // RFC 8985 §6.2 step 3
    } else if (rtt_ps < path_.min_rtt_ps || echo_ps < segment.sent_ps) {
        rack_forward_ = std::max(rack_forward_, number + 1);
        return;  // of an earlier transmission, that is (step 2)
    }
    rack_forward_ = std::max(rack_forward_, number + 1);
    if (segment.transmission > rack_transmission_) {
        rack_transmission_ = segment.transmission;
        rack_rtt_ps_ = rtt_ps;
    }
}

void TcpSender::handle_ack(std::int64_t now_ps, const TcpAck& ack) {
    if (done() || ack.next > nxt_) return;
    delivered_ = 0;
    first_rtt_ps_ = last_rtt_ps_ = -1;
    forward_before_ = rack_forward_;
    const bool advanced = ack.next > una_;

    for (; una_ < ack.next; ++una_) {
        if (at(una_).sacked) {
            --sacked_;
        } else {
            deliver(now_ps, una_, ack.echo_ps);
        }
    }
    for (std::uint32_t i = ack.duplicate ? 1 : 0; i < ack.ranges; ++i) {
        const std::uint32_t end = std::min(ack.range[i].end, nxt_);
        for (std::uint32_t s = first_unsacked(std::max(ack.range[i].begin, una_)); s < end;
             s = first_unsacked(s)) {
            deliver(now_ps, s, INT64_MAX);
            at(s).sacked = 1;
            at(s).skip = (s + 1) & tcp_number_mask;
            ++sacked_;
        }
    }
    if (delivered_ > 0) probe_due_ = false;
    path_.window.count(delivered_, ack.marked);
    if (first_rtt_ps_ >= 0) {
        path_.min_rtt_ps = std::min(path_.min_rtt_ps, last_rtt_ps_);
        take_rtt(first_rtt_ps_);
        path_.window.sample_rtt(last_rtt_ps_);
    }
    handle_probe_ack(ack);
    if (done()) return;

    if (ack.duplicate && una_ >= duplicate_round_end_) {
        // A retransmission was needless: be more patient, once a round (RFC 8985 §6.2 step 4).
        duplicate_round_end_ = nxt_;
        path_.reorder_quarters = std::min(path_.reorder_quarters + 1, most_reorder_quarters);
        path_.reorder_persist = reorder_persistence;
    }
    if (advanced) {
        rto_base_ps_ = probe_base_ps_ = now_ps;
        backoff_ = 0;
        if (state_ != State::open && first_resent_ps_ >= 0 && ack.echo_ps < first_resent_ps_) undo();
        if (state_ != State::open && una_ >= high_) leave_recovery();
    }
    const std::uint32_t losses = detect_losses(now_ps);
    if ((losses > 0 || lost_beyond_) && state_ == State::open) enter_recovery();
    if (ack.marked && state_ == State::open && una_ > cwr_end_) {
        path_.window.mark();
        cwr_end_ = nxt_;
    }
    if (state_ == State::recovery) {
        reduce(delivered_, !advanced || losses > 0);
    } else if (delivered_ > 0 && (state_ == State::loss || una_ > cwr_end_)) {
        // Only a window that was used may grow (compare RFC 7661 §4): in slow start when half of it was, as in Linux;
        // later when four fifths were, since the network card here pulls, and takes no whole window in advance.
        const std::uint32_t flight = std::max(round_flight_, last_round_flight_);
        const double window = path_.window.packets();
        if (path_.window.slow_start() ? window < 2.0 * flight : window < 1.25 * flight + 2) {
            path_.window.grow(delivered_, now_ps, path_.srtt_ps);
        }
    }
    if (una_ >= round_end_) {
        path_.window.end_round();
        round_end_ = nxt_;
        last_round_flight_ = round_flight_;
        round_flight_ = in_flight_;
        // Deviation falls once a round, and rises at once: a round trip brings many samples that say the same
        // (Sarolahti and Kuznetsov 2002, §4).
        if (round_deviation_ps_ < path_.rttvar_ps) path_.rttvar_ps -= (path_.rttvar_ps - round_deviation_ps_) / 4;
        round_deviation_ps_ = 0;
    }
}

void TcpSender::take_rtt(std::int64_t rtt_ps) {
    if (path_.srtt_ps == 0) {
        path_.start_rtt(rtt_ps);
        return;
    }
    std::int64_t error_ps = rtt_ps - path_.srtt_ps;
    path_.srtt_ps += error_ps / 8;
    // A falling round trip is no reason for patience.
    if (error_ps < 0) error_ps = -error_ps > smooth_deviation_ps_ ? -error_ps / 8 : -error_ps;
    smooth_deviation_ps_ += (error_ps - smooth_deviation_ps_) / 4;
    round_deviation_ps_ = std::max(round_deviation_ps_, smooth_deviation_ps_);
    path_.rttvar_ps = std::max(path_.rttvar_ps, round_deviation_ps_);
}

// If the probe repaired the tail, that was a loss and is answered like one, which matters to the connection's next flow.
// RFC 8985 §7.4.2 learns it from the acknowledgement after; here the echo of the probe's own timestamp says so at once.
void TcpSender::handle_probe_ack(const TcpAck& ack) {
    if (probe_end_ == none || una_ < probe_end_) return;
    const bool repaired = probe_again_ && !ack.duplicate && ack.echo_ps >= probe_sent_ps_;
    probe_end_ = none;
    if (repaired && state_ == State::open && una_ > cwr_end_) {
        path_.window.lose();
        cwr_end_ = nxt_;
    }
}

// --- loss ---

std::int64_t TcpSender::reorder_window_ps() const {
    if (!path_.reordering && (state_ != State::open || sacked_ >= duplicate_threshold)) return 0;
    return std::min(static_cast<std::int64_t>(path_.reorder_quarters) * (path_.min_rtt_ps / 4), path_.srtt_ps);
}

bool TcpSender::current(const Transmission& sent) {
    if (sent.segment < una_) return false;
    const Segment& segment = at(sent.segment);
    return segment.transmission == sent.transmission && !segment.sacked && !segment.lost;
}

void TcpSender::mark_lost(std::uint32_t number) {
    at(number).lost = 1;
    // Sent after this recovery began: a loss of its own, once this one is over.
    if (state_ != State::open && number >= high_) lost_beyond_ = true;
    --in_flight_;
    ++lost_;
    resend_.push(number);
}

// RFC 8985 §6.2 step 5: what left before a segment that arrived, by more than reordering explains, is lost.
std::uint32_t TcpSender::detect_losses(std::int64_t now_ps) {
    reorder_deadline_ps_ = -1;
    std::uint32_t losses = 0;
    const std::int64_t patience_ps = rack_rtt_ps_ + reorder_window_ps();
    for (; !order_.empty(); order_.pop()) {
        const Transmission sent = order_.front();
        if (!current(sent)) continue;
        if (sent.transmission >= rack_transmission_) break;
        const std::int64_t due_ps = at(sent.segment).sent_ps + patience_ps;
        if (due_ps > now_ps) {
            reorder_deadline_ps_ = due_ps;
            break;
        }
        mark_lost(sent.segment);
        ++losses;
    }
    return losses;
}

void TcpSender::enter_recovery() {
    ++recoveries_;
    before_ = path_.window;
    recovery_flight_ = std::max(1u, nxt_ - una_);
    // A reduction for a mark in this round trip was for the same congestion.
    if (una_ > cwr_end_ || cwr_end_ == 0) path_.window.lose();
    state_ = State::recovery;
    high_ = nxt_;
    start_stamp();
    recovery_delivered_ = recovery_sent_ = 0;
    recovery_window_ = in_flight_ + 1;  // the first retransmission leaves at once
    probe_end_ = none;
    probe_due_ = lost_beyond_ = false;
}

// Segments that were sent again before and are not acknowledged yet prove nothing about this recovery: their times
// stay.
void TcpSender::start_stamp() {
    if (una_ >= resent_end_) first_resent_ps_ = -1;
}

void TcpSender::leave_recovery() {
    state_ = State::open;
    if (path_.reorder_persist > 0 && --path_.reorder_persist == 0) path_.reorder_quarters = 1;
}

// Proportional rate reduction: what leaves follows what is delivered, until the new window is reached.
void TcpSender::reduce(std::uint32_t delivered, bool conservative) {
    const double target = std::floor(path_.window.threshold());
    if (!settings_->proportional) {
        recovery_window_ = target;
        return;
    }
    recovery_delivered_ += delivered;
    double more = 0;
    const auto sent = static_cast<double>(recovery_sent_);
    if (in_flight_ > target) {
        more = std::ceil(static_cast<double>(recovery_delivered_) * target / recovery_flight_) - sent;
    } else {
        double limit = std::max(static_cast<double>(recovery_delivered_) - sent, static_cast<double>(delivered));
        if (!conservative) limit += 1;
        more = std::min(target - in_flight_, limit);
    }
    if (recovery_sent_ == 0) more = std::max(more, 1.0);
    recovery_window_ = in_flight_ + std::max(0.0, more);
}

// Segments considered lost are still in flight: restores the state before the loss.
void TcpSender::undo() {
    ++undone_;
    if (state_ == State::recovery) path_.reordering = true;
    path_.window = before_;
    state_ = State::open;
    lost_beyond_ = false;
    resend_.clear();
    order_.clear();
    std::vector<Transmission> sent;
    for (std::uint32_t i = una_; i < nxt_; ++i) {
        if (at(i).sacked) continue;
        if (at(i).lost) {
            at(i).lost = 0;
            --lost_;
            ++in_flight_;
        }
        sent.push_back({i, at(i).transmission});
    }
    std::ranges::sort(sent, {}, &Transmission::transmission);
    for (const Transmission& each : sent) order_.push(each);
}

// --- timers ---

std::int64_t TcpSender::rto_ps() const {
    // RFC 6298 §2.3, its clock granularity G being the minimum, as in Linux: the timeout stays that much above the
    // round trip even when its deviation vanishes.
    const std::int64_t base_ps = path_.srtt_ps + std::max(settings_->min_rto_ps, 4 * path_.rttvar_ps);
    const std::int64_t limit_ps = settings_->max_rto_ps;
    return base_ps >= limit_ps >> backoff_ ? limit_ps : base_ps << backoff_;
}

std::int64_t TcpSender::rto_deadline_ps() const {
    return rto_base_ps_ < 0 || una_ == nxt_ ? -1 : rto_base_ps_ + rto_ps();
}

std::int64_t TcpSender::probe_deadline_ps() const {
    // RFC 8985 §7.2
    if (!settings_->tail_probe || state_ != State::open || sacked_ > 0 || probe_end_ != none || una_ == nxt_)
        return -1;
    if (probe_base_ps_ < 0 || probe_due_) return -1;
    std::int64_t delay_ps = 2 * path_.srtt_ps;
    if (in_flight_ == 1) delay_ps += settings_->max_ack_delay_ps;
    return std::min(probe_base_ps_ + std::max(delay_ps, settings_->min_probe_ps), rto_deadline_ps());
}

std::int64_t TcpSender::deadline_ps() const {
    if (done()) return -1;
    std::int64_t first_ps = reorder_deadline_ps_;
    const auto consider = [&](std::int64_t at_ps) {
        if (at_ps >= 0 && (first_ps < 0 || at_ps < first_ps)) first_ps = at_ps;
    };
    consider(rto_deadline_ps());
    consider(probe_deadline_ps());
    if (paced_) consider(pace_ps_);
    return first_ps;
}

void TcpSender::handle_deadline(std::int64_t now_ps) {
    if (done()) return;
    if (now_ps >= pace_ps_) paced_ = false;  // the network card will ask when it is free
    if (reorder_deadline_ps_ >= 0 && now_ps >= reorder_deadline_ps_) {
        const std::uint32_t losses = detect_losses(now_ps);
        if (losses > 0 && state_ == State::open) enter_recovery();
        if (losses > 0 && state_ == State::recovery) reduce(0, true);
    }
    const std::int64_t probe_ps = probe_deadline_ps();
    if (probe_ps >= 0 && now_ps >= probe_ps) {
        probe_due_ = true;
        rto_base_ps_ = now_ps;
        return;
    }
    const std::int64_t rto_ps = rto_deadline_ps();
    if (rto_ps >= 0 && now_ps >= rto_ps) time_out(now_ps);
}

// RFC 6298 §5.4–5.6, RFC 8985 §6.3.
void TcpSender::time_out(std::int64_t now_ps) {
    ++timeouts_;
    const bool again = state_ != State::open;
    if (!again) before_ = path_.window;
    probe_due_ = false;
    probe_end_ = none;
    resend_.clear();
    const std::int64_t patience_ps = rack_rtt_ps_ + reorder_window_ps();
    for (std::uint32_t i = una_; i < nxt_; ++i) {
        Segment& segment = at(i);
        if (segment.sacked) continue;
        if (segment.lost) {
            resend_.push(i);
        } else if (i == una_ || segment.sent_ps + patience_ps <= now_ps) {
            mark_lost(i);
        }
    }
    path_.window.time_out(in_flight_ + 1.0, again);
    state_ = State::loss;
    high_ = nxt_;
    start_stamp();
    lost_beyond_ = false;
    backoff_ = std::min(backoff_ + 1, most_backoff);
    rto_base_ps_ = now_ps;
    pace_ps_ = 0;
}

}  // namespace dlcp::sim

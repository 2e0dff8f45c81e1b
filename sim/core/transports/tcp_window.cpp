// How the three congestion windows grow and shrink; see tcp_window.hpp.
#include "sim/core/transports/tcp_window.hpp"

#include <algorithm>
#include <cmath>

namespace dlcp::sim {
namespace {

constexpr double least_packets = 2;  // RFC 5681 §3.1, equation 4
// HyStart++ (RFC 9406 §4.3)
constexpr std::uint32_t least_samples = 8;
constexpr double conservative_divisor = 4;
constexpr std::uint32_t conservative_round_limit = 5;
constexpr double burst_limit = 8;  // segments that one acknowledgement may add

double seconds(std::int64_t ps) { return static_cast<double>(ps) * 1e-12; }

}  // namespace

double TcpWindow::multiplier() const {
    return settings_->congestion == TcpCongestion::cubic ? settings_->cubic_beta : 0.5;
}

void TcpWindow::grow(std::uint32_t count, std::int64_t now_ps, std::int64_t srtt_ps) {
    double left = count;
    if (slow_start()) {
        double more = left;
        if (settings_->hystart) {
            more = std::min(more, burst_limit);
            if (conservative_rounds_ > 0) more /= conservative_divisor;
        }
        if (packets_ + more < threshold_) {
            packets_ = std::min(packets_ + more, settings_->max_packets);
            return;
        }
        left = std::max(0.0, left - (threshold_ - packets_));
        packets_ = threshold_;
    }
    if (settings_->congestion == TcpCongestion::cubic) {
        grow_cubic(left, now_ps, srtt_ps);
    } else {
        packets_ += left / packets_;  // RFC 5681 §3.1, equation 3
    }
    packets_ = std::min(packets_, settings_->max_packets);
}

void TcpWindow::grow_cubic(double count, std::int64_t now_ps, std::int64_t srtt_ps) {
    const TcpWindowSettings& s = *settings_;
    if (epoch_ps_ < 0) {
        // RFC 9438 §4.2; after a timeout, and if slow start ended without a loss, w_max_ is below the window: K = 0 (§4.8).
        epoch_ps_ = now_ps;
        w_est_ = packets_;
        origin_ = std::max(w_max_, packets_);
        k_s_ = std::cbrt((origin_ - packets_) / s.cubic_c);
    }
    const auto curve = [&](double t_s) {
        const double from_plateau_s = t_s - k_s_;
        return s.cubic_c * from_plateau_s * from_plateau_s * from_plateau_s + origin_;
    };
    const double t_s = seconds(now_ps - epoch_ps_);
    // Reno's window under the same losses (§4.3): slower until it has regained what the reduction took, as CUBIC gives up
    // less at a loss; then one segment per round trip.
    const double alpha = w_est_ < w_prior_ ? 3 * (1 - s.cubic_beta) / (1 + s.cubic_beta) : 1;
    w_est_ += alpha * count / packets_;
    if (s.reno_friendly && curve(t_s) < w_est_) {
        packets_ = std::max(packets_, w_est_);
        return;
    }
    const double target = std::clamp(curve(t_s + seconds(srtt_ps)), packets_, 1.5 * packets_);
    packets_ += count * (target - packets_) / packets_;  // §4.4, §4.5
}

void TcpWindow::lose() {
    if (settings_->congestion == TcpCongestion::cubic) {
        const bool falling = settings_->fast_convergence && packets_ < w_max_;  // §4.7
        w_max_ = falling ? packets_ * (1 + settings_->cubic_beta) / 2 : packets_;
        w_prior_ = packets_;
        epoch_ps_ = -1;
    }
    threshold_ = std::max(least_packets, packets_ * multiplier());
    packets_ = threshold_;
    conservative_rounds_ = 0;
}

void TcpWindow::time_out(double packets, bool again) {
    if (!again) lose();
    w_max_ = 0;
    epoch_ps_ = -1;
    packets_ = packets;
}

void TcpWindow::mark() {
    if (settings_->congestion != TcpCongestion::dctcp) return lose();
    threshold_ = std::max(least_packets, packets_ * (1 - alpha_ / 2));
    packets_ = threshold_;
}

void TcpWindow::count(std::uint32_t count, bool marked) {
    counted_ += count;
    if (marked) marked_ += count;
}

void TcpWindow::sample_rtt(std::int64_t rtt_ps) {
    if (!settings_->hystart || !slow_start()) return;
    round_rtt_ps_ = std::min(round_rtt_ps_, rtt_ps);
    if (++samples_ < least_samples || last_round_rtt_ps_ == INT64_MAX) return;
    if (conservative_rounds_ > 0) {
        if (round_rtt_ps_ < conservative_rtt_ps_) conservative_rounds_ = 0;  // it was not a queue
        return;
    }
    const std::int64_t rise =
        std::clamp(last_round_rtt_ps_ / 8, settings_->hystart_min_ps, settings_->hystart_max_ps);
    if (round_rtt_ps_ >= last_round_rtt_ps_ + rise) {
        conservative_rtt_ps_ = round_rtt_ps_;
        conservative_rounds_ = 1;
    }
}

void TcpWindow::end_round() {
    if (settings_->congestion == TcpCongestion::dctcp && counted_ > 0) {
        alpha_ += settings_->dctcp_gain * (static_cast<double>(marked_) / counted_ - alpha_);
        counted_ = marked_ = 0;
    }
    if (!settings_->hystart || !slow_start()) return;
    if (conservative_rounds_ > 0 && ++conservative_rounds_ > conservative_round_limit) threshold_ = packets_;
    last_round_rtt_ps_ = round_rtt_ps_;
    round_rtt_ps_ = INT64_MAX;
    samples_ = 0;
}

void TcpWindow::skip(std::int64_t idle_ps) {
    if (epoch_ps_ >= 0) epoch_ps_ += idle_ps;
}

}  // namespace dlcp::sim

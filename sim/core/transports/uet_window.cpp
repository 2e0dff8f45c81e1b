// NSCC: increases, decreases and quick adaption of a flow's window. See uet_window.hpp.
#include "sim/core/transports/uet_window.hpp"

#include <algorithm>

namespace dlcp::sim {
namespace {

// As published with the reference model, for 100 Gb/s and 12 us; `scale_` takes them to other networks.
constexpr double model_bytes_per_ps = 100e9 / 8e12;
constexpr std::int64_t model_rtt_ps = 12'000'000;
constexpr double fair_increase_packets = 5;
constexpr double proportional_gain = 4;
constexpr double fast_increase_gain = 0.25;
constexpr double steady_increase_packets = 0.15;
constexpr double decrease_gain = 0.8;
constexpr double adapt_below = 1.0 / 8;  // of the greatest window: a quick adaption cuts deep or not at all
constexpr double adapt_delay_targets = 4;
constexpr double adjust_packets = 8;
constexpr std::int64_t no_delay_ps = 1'000'000;

}  // namespace

UetWindow::UetWindow(double max_bytes, double bytes_per_ps, std::int64_t base_rtt_ps,
                     std::int64_t reference_rtt_ps, std::int64_t target_delay_ps)
    : bytes_(max_bytes),
      max_bytes_(max_bytes),
      base_rtt_ps_(base_rtt_ps),
      reference_rtt_ps_(reference_rtt_ps),
      target_delay_ps_(target_delay_ps),
      scale_(bytes_per_ps * static_cast<double>(reference_rtt_ps) / (model_bytes_per_ps * model_rtt_ps)) {}

void UetWindow::bound(const UetWindowSettings& settings) {
    bytes_ = std::clamp(bytes_, settings.packet_bytes, max_bytes_);
}

UetWindow::Adapted UetWindow::quick_adapt(const UetWindowSettings& settings, std::int64_t now_ps,
                                          double in_flight_bytes, bool loss, bool marked, std::int64_t delay_ps) {
    Adapted adapted = Adapted::no;
    if (ignored_bytes_ < bytes_to_ignore_ && marked) {
        adapted = Adapted::lately;
    } else if (now_ps > adapt_end_ps_) {
        const bool wanted =
            adapt_wanted_ || loss ||
            static_cast<double>(delay_ps) > adapt_delay_targets * static_cast<double>(target_delay_ps_);
        if (adapt_end_ps_ != 0 && wanted && achieved_bytes_ < max_bytes_ * adapt_below) {
            bytes_ = std::max(achieved_bytes_, settings.packet_bytes);
            bytes_to_ignore_ = in_flight_bytes;
            ignored_bytes_ = 0;
            adapt_wanted_ = false;
            adapted = Adapted::now;
        }
        achieved_bytes_ = 0;
        adapt_end_ps_ = now_ps + base_rtt_ps_ + target_delay_ps_;
    }
    if (adapted != Adapted::no) {
        increase_ = 0;
        adjust_bytes_ = 0;
    }
    return adapted;
}

void UetWindow::measure_delay(const UetWindowSettings& settings, std::int64_t delay_ps, bool marked) {
    // A long delay without a mark was another queue than the one that decides.
    const double sample = !marked && delay_ps > target_delay_ps_ ? 0.25 * static_cast<double>(base_rtt_ps_)
                                                                 : static_cast<double>(delay_ps);
    average_delay_ps_ += settings.delay_gain * (sample - average_delay_ps_);
}

// Not marked, and not late: in proportion to what is missing to the target, or faster where there is no queue at all.
void UetWindow::increase_for(const UetWindowSettings& settings, std::int64_t delay_ps, double bytes) {
    if (delay_ps < no_delay_ps) {
        fast_bytes_ += bytes;
        fast_ = fast_ || fast_bytes_ > bytes_;
    } else {
        fast_bytes_ = 0;
        fast_ = false;
    }
    const double target = static_cast<double>(target_delay_ps_);
    if (fast_)
        bytes_ += fast_increase_gain * scale_ * bytes;
    else
        increase_ += proportional_gain * settings.payload_bytes * scale_ *
                     (target / static_cast<double>(model_rtt_ps)) * bytes *
                     (target - static_cast<double>(delay_ps)) / target;
}

bool UetWindow::on_ack(const UetWindowSettings& settings, std::int64_t now_ps, double in_flight_bytes, bool marked,
                       std::int64_t delay_ps, double bytes) {
    achieved_bytes_ += bytes;
    adjust_bytes_ += bytes;
    ignored_bytes_ += bytes;
    measure_delay(settings, delay_ps, marked);
    const Adapted adapted = quick_adapt(settings, now_ps, in_flight_bytes, false, marked, delay_ps);
    if (adapted != Adapted::no) return adapted == Adapted::now;

    const double target = static_cast<double>(target_delay_ps_);
    const bool late = delay_ps >= target_delay_ps_;
    if (!marked && late) {
        increase_ += fair_increase_packets * settings.payload_bytes * scale_ * bytes;
    } else if (!marked) {
        increase_for(settings, delay_ps, bytes);
    } else if (late) {
        fast_ = false;
        fast_bytes_ = 0;
        if (average_delay_ps_ > target && now_ps - last_decrease_ps_ > base_rtt_ps_) {
            bytes_ *= std::max(1 - decrease_gain * (average_delay_ps_ - target) / average_delay_ps_, 0.5);
            last_decrease_ps_ = now_ps;
        }
    }  // marked though not late: another path is enough
    bound(settings);

    const bool period = now_ps - last_adjust_ps_ > reference_rtt_ps_;
    if (adjust_bytes_ > adjust_packets * settings.packet_bytes || period) {
        bytes_ += increase_ / bytes_;
        if (period) {
            bytes_ += steady_increase_packets * settings.payload_bytes * scale_;
            last_adjust_ps_ = now_ps;
        }
        increase_ = 0;
        adjust_bytes_ = 0;
        bound(settings);
    }
    return false;
}

bool UetWindow::on_loss(const UetWindowSettings& settings, std::int64_t now_ps, double in_flight_bytes,
                        bool congestion) {
    ignored_bytes_ += settings.packet_bytes;
    Adapted adapted = Adapted::no;
    if (congestion) {
        measure_delay(settings, reference_rtt_ps_, true);
        adapt_wanted_ = true;
        adapted = quick_adapt(settings, now_ps, in_flight_bytes, true, true, 0);
    }
    if (adapted == Adapted::no) bytes_ -= settings.packet_bytes;
    bound(settings);
    return adapted == Adapted::now;
}

void UetWindow::on_timeout(const UetWindowSettings& settings, std::uint32_t packets) {
    for (std::uint32_t i = 0; i < packets; ++i) bytes_ -= settings.packet_bytes;
    bound(settings);
}

}  // namespace dlcp::sim

// The window, and turns where a receiver gives them (turn_scheduler.hpp). Nobody sets anything: a receiver of which
// several senders fill the line gives turns, and these senders keep to them; everywhere else this is the window. A turn
// speaks of the last hop alone, so the window stays underneath.
#include <utility>

#include "engine/config.hpp"
#include "engine/congestion/controllers.hpp"

namespace dlcp {
namespace {

class AutoControl final : public CongestionControl {
public:
    explicit AutoControl(std::unique_ptr<CongestionControl> window) : window_(std::move(window)) {}

    void on_ack(const AckSample& sample) override { window_->on_ack(sample); }
    void on_timeout(std::uint32_t timeouts) override { window_->on_timeout(timeouts); }
    Bytes window() const override { return window_->window(); }
    Rate pacing_rate(Duration smoothed_rtt) const override { return window_->pacing_rate(smoothed_rtt); }
    bool takes_turns() const override { return true; }
    void begin_turn(Time now, Bytes turn) override { window_->begin_turn(now, turn); }
    void end_turn(bool goes_on) override { window_->end_turn(goes_on); }

private:
    std::unique_ptr<CongestionControl> window_;
};

}  // namespace

std::unique_ptr<CongestionControl> make_auto_control(const EndpointConfig& config, std::uint16_t datagram_bytes,
                                                     Duration base_rtt) {
    return std::make_unique<AutoControl>(make_window_control(config, datagram_bytes, base_rtt));
}

}  // namespace dlcp

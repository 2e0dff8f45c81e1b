// The papers' minimal rule: start at line rate and tolerate loss; halve the rate when a round loses more than 10 %, or has
// it trimmed (MLT evaluates at p = 10 %), otherwise add a twentieth of line rate per round. The window only bounds memory.
#include <algorithm>

#include "engine/config.hpp"
#include "engine/congestion/controllers.hpp"

namespace dlcp {
namespace {

class LineRateControl final : public CongestionControl {
public:
    LineRateControl(const EndpointConfig& config, std::uint16_t datagram_bytes)
        : line_rate_(config.line_rate),
          rate_(config.line_rate),
          window_(config.max_window),
          datagram_(datagram_bytes) {}

    void on_ack(const AckSample& s) override {
        acked_ += s.acked;
        lost_ += s.lost;
        if (s.trimmed)
            lost_ += Bytes{std::uint64_t{s.ce_packets} * datagram_};  // droppable ones, reported as marks
        if (!s.round_over) return;
        if (lost_.value * 10 > (acked_ + lost_).value)
            rate_.value_bps = std::max(rate_.value_bps / 2, line_rate_.value_bps / slowest + 1);
        else
            rate_.value_bps = std::min(rate_.value_bps + line_rate_.value_bps / 20, line_rate_.value_bps);
        acked_ = lost_ = Bytes{0};
    }
    void on_timeout(std::uint32_t timeouts) override {
        if (timeouts >= 2) rate_.value_bps = std::max(rate_.value_bps / 2, line_rate_.value_bps / slowest + 1);
    }
    Bytes window() const override { return window_; }
    // At least two packets per round trip: with fewer the sender would learn nothing about the network's current
    // capacity.
    Rate pacing_rate(Duration smoothed_rtt) const override {
        return std::min(std::max(rate_, rate_of(Bytes{2 * std::uint64_t{datagram_}}, smoothed_rtt)), line_rate_);
    }

private:
    // The smallest fraction of line rate: a 100 Gbit/s host behind a bottleneck of tens of Mbit/s.
    static constexpr std::uint64_t slowest = 4096;

    Rate line_rate_;
    Rate rate_;
    Bytes window_;
    std::uint16_t datagram_;
    Bytes acked_{0};
    Bytes lost_{0};
};

}  // namespace

std::unique_ptr<CongestionControl> make_line_rate_control(const EndpointConfig& config,
                                                          std::uint16_t datagram_bytes, Duration) {
    return std::make_unique<LineRateControl>(config, datagram_bytes);
}

}  // namespace dlcp

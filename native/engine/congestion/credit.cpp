// Receiver credit: after one unscheduled initial window per session, only granted bytes may leave (EQDS, NSDI'22; UET's
// RCCC). The receiver grants at its own line rate (grant_scheduler.hpp). A grant reflects the last hop only, and only
// if the line rate is set correctly, so the window controller stays underneath.
#include <algorithm>

#include "engine/config.hpp"
#include "engine/congestion/controllers.hpp"

namespace dlcp {
namespace {

class CreditControl final : public CongestionControl {
public:
    CreditControl(const EndpointConfig& config, std::uint16_t datagram_bytes, Duration base_rtt)
        : unscheduled_(config.initial_window), network_(make_window_control(config, datagram_bytes, base_rtt)) {}

    void on_ack(const AckSample& sample) override { network_->on_ack(sample); }
    void on_timeout(std::uint32_t timeouts) override { network_->on_timeout(timeouts); }
    Bytes window(const InFlight& under_way) const override {
        const Bytes allowed = unscheduled_ + under_way.granted;
        return std::min(under_way.in_flight + (allowed - std::min(allowed, under_way.sent)),
                        network_->window(under_way));
    }
    Rate pacing_rate(Duration smoothed_rtt) const override { return network_->pacing_rate(smoothed_rtt); }
    bool needs_grants() const override { return true; }
    Bytes demand(const InFlight& under_way, Bytes backlog) const override {
        const Bytes wanted = under_way.sent + backlog;
        return wanted - std::min(wanted, unscheduled_);
    }

private:
    Bytes unscheduled_;
    std::unique_ptr<CongestionControl> network_;
};

}  // namespace

std::unique_ptr<CongestionControl> make_credit_control(const EndpointConfig& config, std::uint16_t datagram_bytes,
                                                       Duration base_rtt) {
    return std::make_unique<CreditControl>(config, datagram_bytes, base_rtt);
}

}  // namespace dlcp

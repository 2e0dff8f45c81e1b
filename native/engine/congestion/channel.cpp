// A channel is the receiver's own buffer; no other sender's packets are in it.
#include "engine/congestion/congestion.hpp"

namespace dlcp {
namespace {

class ChannelControl final : public CongestionControl {
public:
    explicit ChannelControl(Bytes channel_buffer) : window_(channel_buffer) {}
    void on_ack(const AckSample&) override {}
    void on_timeout(std::uint32_t) override {}
    Bytes window() const override { return window_; }
    Rate pacing_rate(Duration) const override { return Rate{0}; }

private:
    Bytes window_;
};

}  // namespace

std::unique_ptr<CongestionControl> make_channel_control(Bytes channel_buffer) {
    return std::make_unique<ChannelControl>(channel_buffer);
}

}  // namespace dlcp

// A TAP interface: what the kernel sends by it comes in here, what is sent here comes out of it (tuntap.rst).
//
// Made if it is not there, and then gone with the switch; brought up. The kernel sees no offload, so frames are
// whole.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "softswitch/descriptor.hpp"
#include "softswitch/port.hpp"

namespace dlcp::softswitch {

class TapPort : public Port {
public:
    // PortError if it cannot be made or opened.
    explicit TapPort(const std::string& name);

    std::span<const Arrival> receive(Time now) override;
    void release() override {}
    std::size_t send(std::span<const Departure> frames) override;
    int descriptor() const override { return tap_.get(); }
    bool link() const override;
    std::uint32_t frame_bytes() const override { return frame_bytes_; }
    PortStatistics statistics() override { return statistics_; }
    void close() override { tap_ = Descriptor(); }

private:
    Descriptor tap_;
    int index_ = 0;
    std::uint32_t frame_bytes_ = 0;
    PortStatistics statistics_;
    std::vector<std::uint8_t> memory_;  // a byte more per frame than it may have, so that a longer one is seen
    std::array<Arrival, batch_frames> arrivals_;
};

}  // namespace dlcp::softswitch

// What goes wrong with a link, and when.
#pragma once

#include <cstdint>

namespace dlcp::sim {

enum class FaultKind : std::uint8_t {
    down,  // carries nothing; what is sent there is lost until routes are made anew
    up,
    loss,     // value: ratio of packets lost at random
    burst,    // Gilbert and Elliott: value: entered per packet, value2: left per packet, value3: lost inside
    rate,     // value: bits per second from now on
    delay,    // value: picoseconds more
    reroute,  // all switches know which links are down now; port is not looked at
};

struct Fault {
    std::int64_t at_ps = 0;
    std::uint32_t port = 0;
    FaultKind kind = FaultKind::down;
    double value = 0;
    double value2 = 0;
    double value3 = 0;
};

// Of a port that has one. Random draws are counted, so that they depend on the port's packets alone.
struct PortFault {
    double loss_ratio = 0;
    double burst_enter_ratio = 0;
    double burst_exit_ratio = 1;
    double burst_loss_ratio = 0;
    bool in_burst = false;
    std::int64_t extra_delay_ps = 0;
    std::uint64_t draws = 0;
};

}  // namespace dlcp::sim

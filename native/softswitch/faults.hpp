// Deliberate faults of one direction of a link: loss, loss in bursts, a cut. Replayable by its seed.
//
// Bursts are Gilbert's (Bell System Technical Journal 39, 1960): two states, no loss in one and only loss in the other,
// with a transition per packet, so that the mean burst and the mean loss are as configured. The line models a slow link
// (Output in core.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "softswitch/random.hpp"

namespace dlcp::softswitch {

struct Faults {
    double loss_ratio = 0;       // of packets, 0 to 1
    double burst_packets = 0;    // mean length of a burst of losses, from 1; 0:
                                 // losses do not know of each other
    bool down = false;           // everything is lost
    std::uint64_t rate_bps = 0;  // the line is no faster than this; 0: as it is. Only of what leaves
    std::uint64_t seed = 0;

    // Empty if usable; otherwise the field, its value and what is accepted.
    std::string validate() const {
        if (!(loss_ratio >= 0 && loss_ratio <= 1))
            return "loss_ratio is " + std::to_string(loss_ratio) + "; accepted: 0 to 1";
        if (!(burst_packets == 0 || (burst_packets >= 1 && burst_packets <= 1e9)))
            return "burst_packets is " + std::to_string(burst_packets) + "; accepted: 0, or 1 to 1000000000";
        if (rate_bps > max_rate_bps)
            return "rate_bps is " + std::to_string(rate_bps) + "; accepted: 0 to " + std::to_string(max_rate_bps);
        return {};
    }

    static constexpr std::uint64_t max_rate_bps = 10'000'000'000'000;
};

class FaultyLink {
public:
    void set(const Faults& faults) {
        faults_ = faults;
        random_ = Random(faults.seed);
        in_burst_ = false;
        leave_ = faults.burst_packets >= 1 ? 1 / faults.burst_packets : 0;
        // Chosen so that enter / (enter + leave) is the loss ratio; a ratio out of reach of such short bursts is capped
        // at 1.
        enter_ = faults.loss_ratio < 1 ? leave_ * faults.loss_ratio / (1 - faults.loss_ratio) : 1;
        active_ = faults.down || faults.loss_ratio > 0;
    }
    const Faults& faults() const { return faults_; }

    // Whether the next packet is lost.
    bool lose() { return active_ && draw(); }

private:
    bool draw() {
        if (faults_.down || faults_.loss_ratio >= 1) return true;
        if (leave_ == 0) return random_.chance(faults_.loss_ratio);
        in_burst_ = random_.chance(in_burst_ ? 1 - leave_ : enter_);
        return in_burst_;
    }

    Faults faults_;
    Random random_;
    double enter_ = 0;
    double leave_ = 0;
    bool in_burst_ = false;
    bool active_ = false;
};

}  // namespace dlcp::softswitch

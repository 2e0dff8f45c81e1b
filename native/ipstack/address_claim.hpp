// Whether an address is ours, and when to say or ask so: the timer of RFC 5227, 2.1 and 2.3, for IPv6 too (RFC 4862, 5.4).
//
//                 nobody has it (60 ms)
//     probing ────────────────────────────► ours: announced twice
//        └─────── somebody has it ────────► taken, for good
//
// Different from the RFCs: three probes are 20 ms apart, not a second or two, for a job waits. A station that needs longer to answer,
// or sits behind a switch port that does not forward yet, is heard later: its frames or its defence against the
// announcements are a conflict then.
#pragma once

#include <cstdint>

#include "engine/units.hpp"
#include "ipstack/interface.hpp"

namespace dlcp::ipstack {

class AddressClaim {
public:
    enum class Say : std::uint8_t { nothing, probe, announcement };

    // An address that was never claimed is ours: whoever gave it has seen to it.
    AddressState state() const { return state_; }
    void claim(Time now);
    // Says once more who has it, if it is ours; probes end with that anyway.
    void announce(Time now);
    // Somebody else has it.
    void lose();

    Time next_deadline() const { return at_; }
    // What is due. Afterwards the deadline is later than now.
    Say poll(Time now);

private:
    AddressState state_ = AddressState::ours;
    unsigned left_ = 0;  // probes, or announcements
    Time at_ = time_never;
};

}  // namespace dlcp::ipstack

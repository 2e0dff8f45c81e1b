// Whether a peer owes an answer, and when to ask for it.
#pragma once

#include <cstdint>

#include "engine/shared_state.hpp"

namespace dlcp {

class Liveness {
public:
    explicit Liveness(SharedState& shared) : shared_(shared) {}

    // Whether the peer owes an answer, by when, and since when. Call after every change of what is in flight.
    void update(Time now, Peer& peer);
    // Puts a probe into the next control packet. A message being cancelled is probed by repeating the cancel frame.
    void ask(Peer& peer);
    // Many packets to this peer are lost, but not in a queue.
    bool loses_by_chance(const Peer& peer) const;
    // How often probe timeouts double at most (and up to max_rto). Where silence is an accident, waiting longer helps
    // nobody: once.
    std::uint32_t most_backoff(const Peer& peer) const { return loses_by_chance(peer) ? 1 : 6; }

private:
    bool owed_answer(const Peer& peer) const;
    Duration probe_timeout(const Peer& peer) const;

    SharedState& shared_;
};

}  // namespace dlcp

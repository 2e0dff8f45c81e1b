// What became of each packet: acknowledgements, losses, silence, and paths that stop to carry large packets.
//
// It decides when a packet counts as lost, hands its blocks back to Outgoing, and reports to the path set, to congestion
// control and to the pacer. What an acknowledgement says of credit and turns is taken here too.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/frames.hpp"
#include "engine/liveness.hpp"
#include "engine/outgoing.hpp"
#include "engine/pieces.hpp"
#include "engine/receiver_credit.hpp"
#include "engine/shared_state.hpp"

namespace dlcp {

class Recovery {
public:
    Recovery(SharedState& shared, Liveness& liveness, Outgoing& outgoing, Pieces& pieces,
             const ReceiverCredit& credit)
        : shared_(shared), liveness_(liveness), outgoing_(outgoing), pieces_(pieces), credit_(credit) {}

    // `number`: of the packet that brought the acknowledgement.
    void handle_ack(Time now, Peer& peer, const wire::Ack& ack, std::uint64_t number);
    void handle_trimmed(Time now, Peer& peer, const std::uint8_t* numbers, std::size_t count);
    // The receiver holds this message and has dropped what came of it: no path and no queue lost these packets.
    void take_back(Peer& peer, std::uint32_t slot);
    // Resolves the oldest packets until another one may be sent: what falls out of the receiver's window can no longer be
    // acknowledged.
    void make_room(Peer& peer);

    // Session timers, by SenderState: loss_at, turn_until, tests_at, probe_at.
    void detect_losses(Time now, Peer& peer);
    void end_turns(Peer& peer);
    void end_size_tests(Time now, Peer& peer);
    void probe_unanswered(Time now, Peer& peer);

    // Large packets seem to vanish (path_size.cpp).
    void suspect_path_size(Time now, Peer& peer);

private:
    void declare_lost(Peer& peer, std::uint64_t number, SentPacket::Loss loss);
    // Forced inline: code that runs once per packet and has one caller. GCC considers it too large.
    [[gnu::always_inline]] inline void acknowledge(Time now, Peer& peer, std::uint64_t number, bool ce,
                                                   AckSample& sample);
    void take_turn(Time now, Peer& peer, const wire::Ack& ack, std::uint64_t number);
    Duration turn_length(const Peer& peer) const;
    void note_loss_share(Peer& peer, const AckSample& sample);
    void judge_paths(Time now, Peer& peer);
    void report(Peer& peer, const AckSample& sample);
    void pace(Time now, Peer& peer, Duration rtt);
    void end_round(Peer& peer, std::uint64_t newest, AckSample& sample);
    void widen_tolerance(Time now, Peer& peer, std::uint64_t number);
    Time settles_at(std::uint64_t number, const SentPacket& packet) const;
    void shrink_datagrams(Time now, Peer& peer, std::uint16_t datagram_bytes);

    SharedState& shared_;
    Liveness& liveness_;
    Outgoing& outgoing_;
    Pieces& pieces_;
    const ReceiverCredit& credit_;
    std::vector<PathSet::Change> path_changes_;
};

}  // namespace dlcp

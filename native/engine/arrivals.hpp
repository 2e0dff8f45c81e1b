// Arriving packets: which session each belongs to, whether it is authentic and new, what its frames do, and what to
// acknowledge.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/frames.hpp"
#include "engine/incoming.hpp"
#include "engine/liveness.hpp"
#include "engine/outgoing.hpp"
#include "engine/prefetch.hpp"
#include "engine/receiver_credit.hpp"
#include "engine/recovery.hpp"
#include "engine/sessions.hpp"
#include "engine/shared_state.hpp"

namespace dlcp {

class Arrivals {
public:
    Arrivals(SharedState& shared, Liveness& liveness, Outgoing& outgoing, Incoming& incoming,
             ReceiverCredit& credit, Recovery& recovery, Sessions& sessions)
        : shared_(shared),
          liveness_(liveness),
          outgoing_(outgoing),
          incoming_(incoming),
          credit_(credit),
          recovery_(recovery),
          sessions_(sessions) {}

    void handle_packets(Time now, std::span<const dlcp_packet> packets);
    void prefetch() const { dlcp::prefetch(&touched_); }
    void prefetch_table() const { dlcp::prefetch(touched_.data()); }

private:
    // A control packet while it is read.
    struct FramesIn {
        Time now;
        Time arrived;
        std::uint32_t delay_ns;  // one way, by both ends' clocks
        std::uint64_t number;    // of the packet
        const dlcp_packet& packet;
    };

    // Forced inline: code that runs once per packet and has one caller. GCC considers it too large; the calls would
    // cost a tenth of the time per packet.
    [[gnu::always_inline]] inline void handle_packet(Time now, const dlcp_packet& packet,
                                                     wire::Datagram& datagram);
    [[gnu::always_inline]] inline Peer* find_session(Time now, const wire::Datagram& datagram);
    [[gnu::always_inline]] inline void take_packet(Time now, Time arrived, Peer& peer, const dlcp_packet& packet,
                                                   const wire::Datagram& datagram);
    void take_whole(const FramesIn& in, Peer& peer, const dlcp_packet& packet, const wire::Datagram& datagram);
    void note_trimmed(Peer& peer, const wire::Header& header);
    bool authentic(Peer& peer, const dlcp_packet& packet, const wire::Datagram& datagram);
    void acknowledge_batch(Time now, Peer& peer);
    void handle_gone(Time now, const dlcp_address& address);
    void touch(Peer& peer);
    void handle_control(Time now, Time arrived, Peer& peer, const dlcp_packet& packet,
                        const wire::Datagram& datagram);

    // frame_handlers.cpp
    void handle_frame(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_ack(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_complete(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_outcome(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_probe(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_probed(Peer& peer, const FramesIn& in, std::uint32_t wire_id);
    void handle_trimmed(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_hold(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_proceed(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_refuse(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_cancel(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_close(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_piece(Peer& peer, const FramesIn& in, const wire::Frame& frame);

    SharedState& shared_;
    Liveness& liveness_;
    Outgoing& outgoing_;
    Incoming& incoming_;
    ReceiverCredit& credit_;
    Recovery& recovery_;
    Sessions& sessions_;
    std::vector<std::uint32_t> touched_;  // peers of which the current batch held a packet
};

}  // namespace dlcp

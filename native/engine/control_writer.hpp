// Builds control packets from what is owed to a peer.
//
// Every frame is idempotent: it states a fact (what arrived, how a message ended), so losing or repeating it does no
// harm. A lost frame is repeated when the peer probes. What arriving frames do: arrivals.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "engine/frames.hpp"
#include "engine/receiver_credit.hpp"
#include "engine/recovery.hpp"
#include "engine/sessions.hpp"
#include "engine/shared_state.hpp"

namespace dlcp {

class ControlWriter {
public:
    ControlWriter(SharedState& shared, Recovery& recovery, Sessions& sessions, ReceiverCredit& credit)
        : shared_(shared), recovery_(recovery), sessions_(sessions), credit_(credit) {}

    // Fills slots with what peers in the control queue are owed. Returns how many packets.
    std::size_t poll(Time now, std::span<dlcp_packet> slots);

private:
    // A control packet while it is written.
    struct FramesOut {
        Time now;
        wire::FrameWriter writer;
        bool asks = false;                                 // for an acknowledgement
        bool closing = false;                              // it holds the goodbye
        std::uint8_t traffic_class = wire::control_class;  // of the queue it travels in
        std::uint16_t tests_bytes = 0;  // it tests whether a datagram of this size passes; 0: no
    };

    static bool owes(const Peer& peer);
    bool write(Time now, Peer& peer, dlcp_packet& slot);
    bool write_size_test(Time now, Peer& peer, dlcp_packet& slot);
    void send(Peer& peer, const FramesOut& out, dlcp_packet& slot);
    std::size_t room(const Peer& peer) const;

    // frame_writers.cpp
    void write_frames(Peer& peer, FramesOut& out);
    void write_ack(Peer& peer, FramesOut& out);
    void write_complete(Peer& peer, FramesOut& out);
    void write_outcome(Peer& peer, FramesOut& out);
    void write_probe(Peer& peer, FramesOut& out);
    void write_probe_of_data(Peer& peer, FramesOut& out);
    void write_trimmed(Peer& peer, FramesOut& out);
    void write_hold(Peer& peer, FramesOut& out);
    void write_proceed(Peer& peer, FramesOut& out);
    void write_refuse(Peer& peer, FramesOut& out);
    void write_cancel(Peer& peer, FramesOut& out);
    void write_floor(Peer& peer, FramesOut& out);
    void write_close(Peer& peer, FramesOut& out);

    SharedState& shared_;
    Recovery& recovery_;
    Sessions& sessions_;
    ReceiverCredit& credit_;
};

}  // namespace dlcp

// What one session keeps about packets and messages from the peer.
//
// Written by Arrivals and Incoming. ControlWriter reads what to acknowledge and answer, and clears what it wrote. A value: a
// new session starts with a new one.
#pragma once

#include <cstdint>

#include "engine/arrival_delays.hpp"
#include "engine/id_ring.hpp"
#include "engine/incoming_id_states.hpp"
#include "engine/packet_window.hpp"
#include "engine/reassembly.hpp"
#include "engine/units.hpp"

namespace dlcp {

// What the receiver knows about one message id of the peer.
struct IncomingEntry {
    IncomingIdState state;
    // A CommandError, of a refused message.
    std::uint8_t reason = 0;
    // A complete, outcome, refuse or hold frame for it waits for the next control packet.
    bool answer_queued = false;
    // The message while it is active or abandoned; else UINT32_MAX.
    std::uint32_t slot = UINT32_MAX;
};

struct ReceiverState {
    // Which packet numbers arrived.
    PacketWindow window;
    // When the packet with the largest number arrived.
    Time largest_arrived_at{0};
    // One-way delays of what arrives.
    ArrivalDelays delays;
    // Packets of data since the last acknowledgement.
    std::uint32_t unacked_packets = 0;
    // Packets that arrived with congestion experienced, in this session; only grows.
    std::uint32_t ce_packets = 0;
    // When an acknowledgement leaves at the latest; time_never: none is due.
    Time ack_at = time_never;
    // Messages by the peer's wire id. base(): the peer's floor, below which all are over for it.
    IdRing<IncomingEntry> messages;
    // Datagrams that arrive in pieces.
    Reassembly reassembly;
    // Entries in state held.
    std::uint32_t held = 0;

    // Whether this message, which the peer still has, was described by a packet that was accepted.
    bool knows(std::uint32_t message_id) const {
        return messages.contains(message_id) && messages[message_id].state != IncomingIdState::State::unknown &&
               messages[message_id].state != IncomingIdState::State::held;
    }
};

}  // namespace dlcp

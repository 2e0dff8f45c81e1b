// What this endpoint allows the peers that send to it: a share of its receive buffer, and turns at its line.
//
// Every sender has a share of the buffer. Where messages to this endpoint meet, it gives turns (turn_scheduler.hpp). What
// is allowed travels in acknowledgements; a change of turns is owed to the peer as one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/shared_state.hpp"
#include "engine/turn_scheduler.hpp"

namespace dlcp {

class ReceiverCredit {
public:
    explicit ReceiverCredit(SharedState& shared);

    // What the peer may have in flight to this endpoint, for an acknowledgement. `turn`: it is its turn's.
    struct Allowed {
        Bytes bytes{0};
        bool turn = false;
    };
    Allowed allowed(Time now, Peer& peer);
    // Data comes from one peer at most.
    bool one_sender() const { return senders_.size() <= 1; }

    // A message with a receive is to come, in whole or in part. What nobody has asked for has no turns: the engine does not
    // know yet whether it is a part of a whole.
    void expect(IncomingMessage& message);
    // So many of its bytes have been placed.
    void placed(const IncomingMessage& message, std::uint32_t bytes) {
        if (message.counted && !message.part)
            turns_.placed(message.peer, {message.traffic_class, message.message_bytes}, bytes);
    }
    // It is over: no more of it is to come.
    void ended(const IncomingMessage& message) {
        if (message.counted && message.part)
            turns_.part_ended(message.peer);
        else
            placed(message, message.missing_bytes());
    }
    // Data has arrived, or its header: `queued` is how long it stood in queues.
    void arrived(const Peer& peer, Time at, std::uint64_t bytes, Duration queued) {
        // A channel takes nothing of the line.
        if (turns_.gives() && !is_trusted(peer.address)) turns_.arrived(at, bytes, queued);
    }
    void trimmed() { turns_.trimmed(wire::header_bytes); }
    // This endpoint sends as well: acknowledgements share its line.
    void sent(std::uint64_t bytes) { turns_.sent(bytes); }

    // The peer has no session any longer, or another one, or takes nothing of the line any more.
    void forget(const Peer& peer) { turns_.forget(peer.index); }

    // After a batch of packets.
    void settle(Time now) {
        if (turns_.due(now)) give_turns(now);
    }
    Time next_deadline() const { return turns_.next(); }
    void handle_timer(Time now);

private:
    Bytes share(Time now, Peer& peer);
    void give_turns(Time now);

    SharedState& shared_;
    std::vector<std::uint32_t> senders_;  // peers that sent data recently; they share the receive buffer
    Time senders_checked_at_{INT64_MIN / 2};
    TurnScheduler turns_;
    std::vector<std::uint32_t> told_;  // peers that a decision about turns concerns
};

}  // namespace dlcp

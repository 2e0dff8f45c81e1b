// Messages to peers: from the command to the final event. Messages of one tag to one peer leave one after the other.
#pragma once

#include <cstdint>

#include "engine/liveness.hpp"
#include "engine/shared_state.hpp"
#include "engine/tag_map.hpp"

namespace dlcp {

class Outgoing {
public:
    Outgoing(SharedState& shared, Liveness& liveness) : shared_(shared), liveness_(liveness) {}

    // Commands, and what they return: see Endpoint. add() leaves the message where it waits for its tag.
    CommandResult<std::uint32_t> add(Time now, Peer& peer, const SendCommand& command);
    CommandError release_blocks(Time now, MessageId id, std::uint32_t first, std::uint32_t count);
    CommandError cancel(Time now, MessageId id);
    CommandError release(MessageId id);
    CommandResult<MessageOutcome> outcome(MessageId id) const;
    // The blocks of a new message: the present ones, or the former if the caller counted just before they shrank; 0: its
    // importance fits neither.
    static std::uint16_t block_bytes_of(const Peer& peer, const SendCommand& command);

    // The message that the peer's frame names; UINT32_MAX if it is over.
    static std::uint32_t find(const Peer& peer, std::uint32_t wire_id);
    bool first_of_tag(std::uint32_t slot);
    // Lets a message leave that is first of its tag, while its session is up.
    void enqueue(std::uint32_t slot, bool front);
    // The session is up: messages that waited for it are cut as it needs, and may leave, except behind an earlier one of
    // their tag.
    void start_all(Peer& peer);
    // The session ends: messages sent since the goodbye was due wait for the next one; none of their bytes has left.
    void suspend_all(Peer& peer);
    // Reports the final event of a message, unless it was reported before (cancelled), and removes it from every queue.
    void finish(Time now, std::uint32_t slot, CommandError error);

private:
    void unqueue(Peer& peer, std::uint32_t slot);
    void retire_id(Peer& peer, std::uint32_t wire_id);
    void start_next_of_tag(OutgoingMessage& message);

    SharedState& shared_;
    Liveness& liveness_;
    TagMap active_tags_;  // (peer, tag) → the message being sent and the last one waiting
};

}  // namespace dlcp

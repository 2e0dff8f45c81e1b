// What a handshake with one peer has come to: the session ids of both sides, and when to say hello again.
//
// Written by handshake.cpp, and by control.cpp when it writes a hello. When a session ends a new one starts with a fresh
// id.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/packet.h"
#include "engine/units.hpp"

namespace dlcp {

struct HandshakeState {
    // This side's session id, fresh per handshake, never 0.
    std::uint64_t own_session = 0;
    // The peer's id as last heard; proven once the session is established. 0: not heard.
    std::uint64_t peer_session = 0;
    // Packet number of the next hello under own_session.
    std::uint64_t next_number = 0;
    // Hellos sent since the handshake started.
    std::uint32_t attempts = 0;
    // A hello leaves with the next packet.
    bool due = false;
    // When to say hello again; time_never: not at all.
    Time at = time_never;
    // When the last hello left that was no answer.
    Time sent_at{0};
    // The peer asked for an answer, about the session or about the candidate, at this address.
    bool answer_due = false;
    dlcp_address answer_address{};

    // A peer that seems to have restarted: the session that takes the present one's place once the peer proves that it
    // has heard `own_session`.
    struct Candidate {
        std::uint64_t own_session = 0;
        std::uint64_t peer_session = 0;
        std::uint64_t next_number = 0;  // of the next hello under own_session
        bool answer_due = false;
    };
    std::optional<Candidate> candidate;

    // The private channel that a hello of the peer's came out of, and the peer's session id that the hello named: what
    // else comes out of the channel for that session comes from the same process, and needs no tag.
    dlcp_address channel{};
    std::uint64_t channel_session = 0;

    bool candidate_answer_due() const { return candidate && candidate->answer_due; }
};

}  // namespace dlcp

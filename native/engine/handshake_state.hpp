// The state of a handshake with one peer: the session ids of both sides, and when to send the next hello.
//
// Written by Sessions, and by the endpoint when its time has come. When a session ends a new one starts with a fresh id.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cipher.hpp"
#include "engine/packet.h"
#include "engine/units.hpp"

namespace dlcp {

struct HandshakeState {
    // This side's session id, fresh per handshake, never 0.
    std::uint64_t own_session = 0;
    // The peer's id as last received; proven once the session is established. 0: none received.
    std::uint64_t peer_session = 0;
    // What the hello with peer_session states.
    CipherCosts peer_ciphers{};
    // Packet number of the next hello under own_session.
    std::uint64_t next_number = 0;
    // Attempts since the handshake started: hellos, and from the third on ladders of them.
    std::uint32_t attempts = 0;
    // A hello leaves with the next packet; which one of the attempt under way.
    bool due = false;
    std::uint32_t rung = 0;
    // When to send a hello again; time_never: not at all.
    Time at = time_never;
    // When hellos left that were no answers: the last one, and those before it that may still be answered.
    std::vector<Time> sent_at;
    // The peer asked for an answer, about the session or about the candidate, at this address.
    bool answer_due = false;
    dlcp_address answer_address{};
    // How many answers have left, and when the first did.
    std::uint32_t answers = 0;
    Time answered_at{0};
    // Sizes of the hellos of `heard_session` that are to be answered, each once.
    std::uint64_t heard_session = 0;
    std::vector<std::uint16_t> answer_sizes;

    // A peer seems to have restarted: the session that replaces the current one once the peer proves that it received
    // `own_session`.
    struct Candidate {
        std::uint64_t own_session = 0;
        std::uint64_t peer_session = 0;
        CipherCosts peer_ciphers{};
        std::uint64_t next_number = 0;  // of the next hello under own_session
        bool answer_due = false;
    };
    std::optional<Candidate> candidate;

    // The private channel that delivered a hello of the peer, and the peer's session id in that hello. Other packets of
    // that session out of that channel come from the same process, and need no tag.
    dlcp_address channel{};
    std::uint64_t channel_session = 0;

    bool candidate_answer_due() const { return candidate && candidate->answer_due; }
};

}  // namespace dlcp

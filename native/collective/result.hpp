// How an operation ended.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/schedule.hpp"
#include "engine/endpoint.hpp"

namespace dlcp {

// A rank of a group that is not known, or not there.
inline constexpr std::uint32_t no_member = UINT32_MAX;

enum class CollectiveError : std::uint8_t {
    none,
    timeout,       // this collective's time is up
    peer_failed,   // the engine lost the peer; `engine_error` says how
    mismatch,      // `culprit` called something else, or with other sizes
    group_failed,  // the group had failed: `culprit`, `cause` are those of the first failure
    aborted,       // by this process: abort(), close()
};
inline const char* name(CollectiveError error) {
    switch (error) {
        case CollectiveError::none: return "none";
        case CollectiveError::timeout: return "timeout";
        case CollectiveError::peer_failed: return "peer_failed";
        case CollectiveError::mismatch: return "mismatch";
        case CollectiveError::group_failed: return "group_failed";
        case CollectiveError::aborted: return "aborted";
    }
    return "unknown";
}

// How a collective ended.
struct CollectiveResult {
    CollectiveError error = CollectiveError::none;
    CollectiveError cause = CollectiveError::none;  // group_failed: what happened there
    CommandError engine_error = CommandError::none;
    std::uint32_t culprit = no_member;   // rank in the group
    std::uint32_t reporter = no_member;  // group_failed: the rank that announced it
    std::uint32_t sequence = 0;          // of the collective that failed first
    std::uint32_t peer = no_member;      // of a single message: the rank that sent it
    std::uint64_t bytes = 0;             // of a single message: how many came
    Duration waited{0};
    std::uint64_t sent_bytes = 0;           // payload, without repairs
    std::uint64_t received_bytes = 0;       // payload
    std::uint64_t retransmitted_bytes = 0;  // payload, of the messages that were waited for
    Duration lossy_fastest{0};  // from the start until the first of this rank's lossy messages was over
    // What was given up of one lossy message; only those of which something was.
    struct Abandoned {
        bool sent = false;       // by this rank; else it should have come
        std::uint32_t peer = 0;  // rank in the group
        Chunk chunk;             // what was sent, or where it would have gone
        std::uint32_t message_bytes = 0;
        std::uint16_t block_bytes = 0;
        std::uint32_t abandoned_bytes = 0;
        std::vector<std::uint64_t> blocks;  // bit i of word i/64: block i
    };
    std::vector<Abandoned> abandoned;
    // Members that had still something to send to us or take from us; at most 16 are named.
    struct Waiting {
        std::uint32_t peer;
        bool for_arrival;  // else: for it to take what we send
        std::uint64_t missing_bytes;
    };
    std::vector<Waiting> waiting_for;
    // mismatch: what the other rank's message said, as far as it is known; of its signature the low 16 bits
    std::uint16_t foreign_signature = 0;
    std::uint64_t foreign_bytes = 0;
    std::uint64_t expected_bytes = 0;

    // What happened first, here or at another member.
    CollectiveError root_error() const { return error == CollectiveError::group_failed ? cause : error; }
};

// One operation of an executor, from its start until poll_over has answered it.
struct CollectiveId {
    std::uint32_t slot = UINT32_MAX;
    std::uint32_t generation = 0;
    friend bool operator==(CollectiveId, CollectiveId) = default;
};

}  // namespace dlcp

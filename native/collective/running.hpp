// What the executor keeps of one collective under way, and of one group.
//
// Records, changed by the parts of the executor (executor, dataflow, failure); they decide nothing themselves.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "collective/executor.hpp"
#include "collective/granules.hpp"
#include "collective/memory_pool.hpp"
#include "collective/reduce.hpp"
#include "collective/schedule.hpp"
#include "collective/tag.hpp"

namespace dlcp {

// One operation of a schedule under way. What it is, the schedule says.
struct StepState {
    ChunkMemory memory;            // of the target; send: of the source
    MessageId message;             // send, receive
    PeerId peer;                   // send, receive
    bool over = false;             // nothing more to do for the collective
    bool arrived = false;          // receive: the message is over
    bool open = false;             // send: blocks are cut for good, so that they can be released
    bool detached = false;         // send: leaves from a copy, and outlives the collective
    std::uint8_t* copy = nullptr;  // send: the copy it leaves from; nullptr: the memory itself
    std::uint64_t left_bytes = 0;  // not yet produced; send: not yet let go
    Granules produced;             // tracked if a later operation waits for it
    // receive: arrived before its operand was there.
    MemoryPool::Piece early;
    Granules waiting;
    Granules absent;  // lossy receive: given up; tracked once something was
};

struct Running {
    std::uint32_t group = 0;
    bool single = false;  // one message, not a collective
    bool single_sends = false;
    std::uint64_t single_tag = 0;
    std::uint32_t sequence = 0;
    std::uint32_t signature = 0;               // 28 bits (tag.hpp)
    std::shared_ptr<const Schedule> schedule;  // not of a single message
    DataType type = DataType::u8;
    ReduceFunction reduce = nullptr;
    AverageFunction average = nullptr;
    MultiplyFunction multiply = nullptr;
    std::uint32_t average_over = 0;
    std::uint32_t element_bytes = 1;
    bool may_lose = false;  // started with LossRules
    bool rescale = false;
    std::array<std::vector<ChunkMemory>, spaces> memory;
    std::vector<MemoryPool::Piece> borrowed;
    std::vector<StepState> steps;
    std::uint32_t steps_left = 0;     // steps that are not over, detached sends aside
    std::uint32_t messages_left = 0;  // of ours in the engine, detached sends aside
    Time since{0};
    Time deadline = time_never;
    // Its time is up, or another rank's is (inquiry.cpp): the peers waited for have been asked.
    bool asked = false;
    bool asked_for_others = false;
    Time asked_at{0};
    struct Asker {
        std::uint32_t member;  // rank in the group
        // Of what it asked for: this one, or a later one that this one keeps from being called.
        std::uint32_t sequence;
        friend bool operator==(const Asker&, const Asker&) = default;
    };
    std::vector<Asker> askers;
    std::uint32_t absent = UINT32_MAX;  // the rank that has not called this, as far as is known
    bool absent_is_silent = false;      // it does not even answer
    bool accused = false;               // Group::accusation: others waited for this rank, which waits in this
    bool doomed = false;  // a peer gave its part up, or left: fails at `deadline`, unless word comes why
    bool failed = false;
    CollectiveResult result;
};

struct Group {
    std::uint32_t number = 0;
    std::uint32_t own = 0;
    std::vector<std::uint32_t> members;  // endpoint ranks
    std::vector<PeerId> peers;           // of the members, as far as they have been asked for
    std::vector<std::uint32_t> running;  // slots
    bool closing = false;                // goes once nothing of it is in the engine
    bool failed = false;
    CollectiveResult failure;     // of the first failure
    CollectiveResult accusation;  // a word that blames this rank, kept while it asks whom it waits for itself
    std::uint32_t accuser = UINT32_MAX;  // who sent it, and may have left since
    bool tells = false;                  // the members are told of it
    std::vector<bool> told;              // … by member
    MessageId failure_receive;
    std::array<std::uint8_t, 64> failure_buffer{};
    // The last collectives, by sequence: a message for one that is over here is judged by them.
    struct Past {
        std::uint32_t sequence = UINT32_MAX;
        std::uint32_t signature = 0;  // 28 bits (tag.hpp)
        std::shared_ptr<const Schedule> schedule;
    };
    std::array<Past, 256> past{};
    // Messages for collectives that have not started here, by sequence.
    struct Early {
        std::uint32_t peer;  // rank in the group
        Tag tag;
        std::uint32_t bytes;
    };
    std::vector<Early> early;
};

}  // namespace dlcp

// What the executor keeps about one operation: a collective, or a single message, that is not over.
//
// Plain records, changed by the parts of the executor.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/command.hpp"
#include "collective/granules.hpp"
#include "collective/memory_pool.hpp"
#include "collective/reduce.hpp"
#include "collective/result.hpp"
#include "collective/states.hpp"

namespace dlcp {

// How far one step of a schedule is. What the step does, the schedule says (Schedule::Step); a single message is one
// step without a schedule.
struct StepState {
    ChunkMemory memory;            // of the target; of a send: of the source
    MessageId message;             // send, receive: the engine's, once started
    PeerId peer;                   // send, receive
    bool over = false;             // nothing more to do for the operation
    bool arrived = false;          // the message is over: received, or acknowledged by the peer
    bool open = false;             // send: the session is up, so blocks have their final size and may be released
    bool detached = false;         // send: leaves from a copy, and outlives the operation
    std::uint8_t* copy = nullptr;  // send: the copy it leaves from; nullptr: it leaves from `memory`
    std::uint64_t left_bytes = 0;  // of `memory`: not yet produced; of a send: not yet released to the engine
    Granules produced;             // of the target; tracked if a later step waits for it
    MemoryPool::Piece early;       // receive: bytes that arrived before their operand was there
    Granules waiting;              // receive: which bytes of `early` those are
    Granules absent;               // lossy receive: bytes that were given up; tracked once some were
};

struct GroupOperation {
    // What was started; unchanged from then on.
    std::uint32_t group = 0;                   // number
    bool single = false;                       // one message, not a collective
    bool single_sends = false;                 // single: this rank sends it
    std::uint64_t single_tag = 0;              // single: the engine's tag (tag.hpp)
    std::uint32_t sequence = 0;                // of the group's collectives; tags carry the low 20 bits
    std::uint32_t signature = 0;               // 28 bits: what all ranks must agree on (tag.hpp)
    std::shared_ptr<const Schedule> schedule;  // nullptr: single
    DataType type = DataType::u8;
    std::uint32_t element_bytes = 1;  // of `type`
    ReduceFunction reduce = nullptr;  // nullptr: not defined for `type`
    AverageFunction average = nullptr;
    MultiplyFunction multiply = nullptr;
    std::uint32_t average_over = 0;                       // > 0: final results are divided by it
    bool copies_short = true;                             // CollectiveCommand::copies_short
    bool may_lose = false;                                // started with LossRules
    bool rescale = false;                                 // LossRules::rescale
    std::optional<UpdateRules> update;                    // final results are next weights
    std::optional<CodedRules> coded;                      // the elements are coded groups
    std::array<std::vector<ChunkMemory>, spaces> memory;  // by Space, then by index of the chunk
    std::optional<OptimizerStep> optimizer_step;          // update: its step
    std::vector<std::size_t> coded_first;                 // coded: the first value of each step that combines
    std::vector<MemoryPool::Piece> borrowed;  // scratch; goes back to the pool when the operation is over
    Time since{0};                            // when it started

    // How far it is.
    std::vector<StepState> steps;
    std::uint32_t steps_left = 0;     // steps that are not over
    std::uint32_t messages_left = 0;  // messages in the engine, detached sends aside
    CollectiveResult result;          // filled as it goes; complete when it is over

    // How it fails (failure.cpp, inquiry.cpp).
    StateMachine<OperationStates> state;
    StateMachine<InquiryStates> inquiry;
    StateMachine<AbsenceStates> absence;
    Time deadline = time_never;             // of the caller; of a doomed or accused operation: when it fails
    Time asked_at{0};                       // when the ranks waited for were asked last
    std::uint32_t absent_rank = no_member;  // in the group; whom `absence` is about
    // A rank that asked this one, and is sent what is found out.
    struct Asker {
        std::uint32_t member;    // rank in the group
        std::uint32_t sequence;  // it asked for this collective, or for a later one that waits for this one
        friend bool operator==(const Asker&, const Asker&) = default;
    };
    std::vector<Asker> askers;

    // What blocks hold a whole number of, and when bytes count as available.
    std::uint16_t unit_bytes() const {
        return coded ? static_cast<std::uint16_t>(group_bytes(coded->codec)) : std::uint16_t{1};
    }
    std::uint32_t granule_bytes() const { return coded ? unit_bytes() : Granules::granule_bytes; }
    // The result stands: blocks that still come are ignored.
    bool ended() const { return state == OperationStates::State::failed || state == OperationStates::State::over; }
    bool accused() const { return state == OperationStates::State::accused; }
    bool doomed() const { return state == OperationStates::State::doomed; }
    bool asking() const { return inquiry == InquiryStates::State::asking; }
    bool silent() const { return absence == AbsenceStates::State::silent; }
};

}  // namespace dlcp

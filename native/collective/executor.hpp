// Runs collectives: schedules over an Endpoint, many at once, block by block.
//
// Sans-IO like the engine, and called by whoever owns the Endpoint, from the same one thread at a time. A block that
// arrives is combined and its result handed to the messages that wait for it inside Endpoint::handle_packets; it
// leaves with the next poll_transmit. Nothing is stored that need not be: only a block whose operand is not there
// yet, and what a `combine` of several arrivals waits for.
//
//   start        a collective, or a single message           then poll_transmit of the Endpoint
//   handle_event every event of the Endpoint                 true: it was the executor's
//   handle_timer when next_deadline() has been reached
//   poll_over    what is over                                 repeat until it returns false
//
// Order of summation is the schedule's, never that of arrival: every rank computes the same bits in every run.
//
// Groups fail as a whole: when a message of a collective fails or its time is up, all of the group's collectives fail,
// and the members that this rank has a session with are told which rank is to blame, who tell theirs. What starts
// afterwards fails at once with the same cause.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/element.hpp"
#include "collective/partition.hpp"
#include "collective/schedule.hpp"
#include "engine/endpoint.hpp"

namespace dlcp {

// How the lossy messages of a schedule may lose blocks. What is given up is not in the result, and is in
// CollectiveResult::abandoned at both ends; nothing else of a collective can be lost.
struct LossRules {
    // Of each lossy message that this rank sends: fraction of its bytes that may be abandoned, [0, 1).
    double loss_ratio = 0.0;
    // > 0: the receiver ends it this long after its first packet, budget or not; critical blocks are awaited even so.
    Duration deadline{0};
    // >= 0: so long after the start, droppable blocks that have not left are given up unsent, the least important, as far
    // as the budget goes (SendCommand::patience). Not with a deadline.
    Duration patience{-1};
    // By rank in the group: how much the blocks of the lossy message to it matter, as SendCommand::importance. Empty,
    // or an empty entry: all are critical. Read during start() only.
    std::span<const std::span<const std::uint8_t>> importance;
    // A final result is divided by the contributions that came, and multiplied by the number of ranks if it is a sum.
    // Otherwise what did not come counts as nothing. Sum only.
    bool rescale = false;
};

struct CollectiveCommand {
    std::uint32_t group = 0;
    std::shared_ptr<const Schedule> schedule;
    std::uint32_t sequence = 0;   // of this group's collectives; the low 20 bits count
    std::uint32_t signature = 0;  // 28 bits: what all ranks must agree on (kind, type, reduction, root, sizes)
    std::span<const ChunkMemory> input;
    std::span<const ChunkMemory> output;
    DataType type = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    std::uint32_t average_over = 0;  // > 0: divide final results
    std::uint8_t traffic_class = 0;
    Duration timeout{-1};  // negative: none
    // nullptr: lossy messages are reliable like all others. Read during start() only.
    const LossRules* loss = nullptr;
};

// One message between two members: send, receive, receive from anyone.
struct MessageCommand {
    std::uint32_t group = 0;
    bool sending = false;
    std::uint32_t peer = UINT32_MAX;  // rank in the group; UINT32_MAX: from anyone
    std::uint32_t tag = 0;            // the user's
    ChunkMemory memory;
    std::uint8_t traffic_class = 0;
    Duration timeout{-1};
};

enum class CollectiveError : std::uint8_t {
    none,
    timeout,       // this collective's time is up
    peer_failed,   // the engine lost the peer; `engine_error` says how
    mismatch,      // `culprit` called something else, or with other sizes
    group_failed,  // the group had failed: `culprit`, `cause` are those of the first failure
    aborted,       // by this process: abort(), close()
};
const char* name(CollectiveError error);

// How a collective ended.
struct CollectiveResult {
    CollectiveError error = CollectiveError::none;
    CollectiveError cause = CollectiveError::none;  // group_failed: what happened there
    CommandError engine_error = CommandError::none;
    std::uint32_t culprit = UINT32_MAX;   // rank in the group; UINT32_MAX: unknown
    std::uint32_t reporter = UINT32_MAX;  // group_failed: who said so
    std::uint32_t sequence = 0;           // of the collective that failed first
    std::uint32_t peer = UINT32_MAX;      // of a single message: who sent it
    std::uint64_t bytes = 0;              // of a single message: how many came
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
};

struct CollectiveId {
    std::uint32_t slot = UINT32_MAX;
    std::uint32_t generation = 0;
    friend bool operator==(CollectiveId, CollectiveId) = default;
};

class CollectiveExecutor {
public:
    explicit CollectiveExecutor(Endpoint& endpoint);
    ~CollectiveExecutor();
    CollectiveExecutor(const CollectiveExecutor&) = delete;
    CollectiveExecutor& operator=(const CollectiveExecutor&) = delete;

    // A group of ranks: `members[i]` is the endpoint rank of the group's rank i. `group` is below 2^14 and the same on
    // all of them. False: this number is open already.
    bool open_group(Time now, std::uint32_t group, std::span<const std::uint32_t> members, std::uint32_t own);
    // Ends what is under way in it with `aborted`, telling the others if `tell`.
    void close_group(Time now, std::uint32_t group, bool tell);

    // Every peer that the schedule names must be a peer of the endpoint (Endpoint::connect). Memory stays the caller's
    // until the collective is over. Returns an id in any case; a collective that cannot start is over with an error.
    CollectiveId start(Time now, const CollectiveCommand& command);
    CollectiveId start(Time now, const MessageCommand& command);

    bool handle_event(Time now, const Event& event);
    void handle_timer(Time now);
    Time next_deadline() const;
    // Ends what waits only for a word why it cannot go on. Call before Endpoint::close, which ends all that has messages.
    void stop_waiting(Time now);
    // Copies of short messages are still on their way: closing the endpoint now would lose them.
    bool draining() const;
    // Answers each id once, when no memory of it is touched any more.
    bool poll_over(CollectiveId& id, CollectiveResult& result);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace dlcp

// Runs collectives: schedules over an Endpoint, many at once, block by block.
//
// Sans-IO like the engine, and called by the owner of the Endpoint, from the same one thread at a time. A block that
// arrives is combined, and its result handed to the messages that wait for it, inside Endpoint::handle_packets; it
// leaves with the next poll_transmit. Two things are stored: a block whose operand is not there yet, and what a
// `combine` of several arrivals waits for.
//
//   start        a collective, or a single message           then poll_transmit of the Endpoint
//   handle_event every event of the Endpoint                 true: the event was the executor's
//   handle_timer when next_deadline() has been reached
//   poll_over    what is over                                repeat until it returns false
//
// The schedule decides the order of summation, never the order of arrival: every rank computes the same bits in every
// run.
//
// Groups fail as a whole: when a message of a collective fails or its time is up, all of the group's collectives fail.
// The executor notifies every member that it has a session with which rank is to blame, and each of these notifies its
// own. What starts afterwards fails at once with the same cause. A member that aborts the group ends what it has not
// finished: collectives from a number on. What it owes to earlier ones is still delivered, and they go on everywhere.
// What needs a member whose process has left fails when it starts, unless it is here already.
//
// One file per part:
//
//   executor.cpp  starting, events and timers       dataflow.cpp  blocks in, results on
//   groups.cpp    groups, their members             failure.cpp   how operations and groups fail
//   messages.cpp  an operation's messages, its end  notice.cpp    how a group's members learn of a failure
//   loss.cpp      what may be given up, and was     inquiry.cpp   which rank a collective waits for
//   coded.cpp     sums of coded values              mismatch.cpp  messages that nobody waits for
//   update.cpp    an optimizer on sums
//
// Invariant: memory of an operation is touched only while it is in Group::operations. It leaves when each of its
// messages has had its final event, detached sends aside, which own a copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "collective/command.hpp"
#include "collective/group.hpp"
#include "collective/operation.hpp"
#include "collective/result.hpp"
#include "collective/tag.hpp"
#include "engine/deadline_heap.hpp"
#include "engine/ring_queue.hpp"
#include "engine/slab.hpp"

namespace dlcp {

class CollectiveExecutor {
public:
    // What to one peer at most leaves from copies at once.
    static constexpr Bytes max_copied_default{16 * 1024 * 1024};
    explicit CollectiveExecutor(Endpoint& endpoint, Bytes max_copied = max_copied_default)
        : endpoint_(endpoint), max_copied_(max_copied) {}
    CollectiveExecutor(const CollectiveExecutor&) = delete;
    CollectiveExecutor& operator=(const CollectiveExecutor&) = delete;

    // A group of ranks: `members[i]` is the endpoint rank of the group's rank i. `group` is below 2^14 and the same on
    // all of them. False: this number is open already.
    bool open_group(Time now, std::uint32_t group, std::span<const std::uint32_t> members, std::uint32_t own);
    // Ends its operations with `aborted`. `notify`: the members learn that this rank has closed it.
    void close_group(Time now, std::uint32_t group, bool notify);

    // Every peer that the schedule names must be a peer of the endpoint (Endpoint::connect). Memory stays the caller's
    // until the operation is over. Returns an id in any case; an operation that cannot start is over with an error.
    CollectiveId start(Time now, const CollectiveCommand& command);
    CollectiveId start(Time now, const MessageCommand& command);

    bool handle_event(Time now, const Event& event);
    void handle_timer(Time now);
    Time next_deadline() const { return deadlines_.next(); }
    // Ends operations that wait only to learn why they fail. Call before Endpoint::close, which ends those with messages.
    void stop_waiting(Time now);
    // Copies of short messages are still on their way: closing the endpoint now would lose them.
    bool draining() const { return !detached_.empty(); }
    // Bytes that operations which may be over have left in copies, by peer. `copied`: on their way; only peers with some.
    // `lost`: the peer left or died without them.
    using BytesByPeer = std::unordered_map<std::uint32_t, std::uint64_t>;  // by PeerId::value
    const BytesByPeer& copied() const { return copied_; }
    const BytesByPeer& lost() const { return lost_; }
    // Answers each id once, when no memory of it is touched any more.
    bool poll_over(CollectiveId& id, CollectiveResult& result);

private:
    static constexpr std::uint32_t no_slot = UINT32_MAX;

    // A step of an operation: the owner of a message of the engine. As a token it goes through the engine to on_block.
    struct StepId {
        std::uint32_t slot = no_slot;  // of the operation
        std::uint32_t step = 0;
        std::uint64_t token() const { return std::uint64_t{slot} << 32 | step; }
        static StepId of(std::uint64_t token) {
            return {static_cast<std::uint32_t>(token >> 32), static_cast<std::uint32_t>(token)};
        }
    };
    // A send that outlives the operation that started it.
    struct Detached {
        MemoryPool::Piece memory;             // the copy that it leaves from
        std::uint32_t group;                  // number
        std::uint32_t peer;                   // rank in the group
        bool fails_group;                     // its failure is the group's; else nobody's
        StepId writer = {};                   // the step that fills `memory`, while `writer_generation` is in use
        std::uint32_t writer_generation = 0;  // of the slot
        std::uint64_t tag = 0;                // fails_group: of the message
    };
    // A receive into nothing, for a message that was on hold when its group had failed.
    struct Discarded {
        MessageId message;
        std::uint32_t group;  // number
    };
    static std::uint64_t key_of(MessageId message) {
        return std::uint64_t{message.generation} << 32 | message.slot;
    }

    // executor.cpp
    std::uint32_t begin(Time now, Group& group, Duration timeout);
    void check(Group& group, const CollectiveCommand& command);
    void check(Group& group, const MessageCommand& command);
    std::uint32_t prepare(Time now, Group& group, const CollectiveCommand& command);
    void bind_memory(GroupOperation& operation, const CollectiveCommand& command);
    void prepare_steps(GroupOperation& operation);
    bool start_messages(Time now, Group& group, std::uint32_t slot, const CollectiveCommand& command);
    void combine_local(Time now, std::uint32_t slot);
    CollectiveId id_of(std::uint32_t slot) const { return {slot, operations_.generation(slot)}; }

    // groups.cpp
    Group* find_group(std::uint32_t number);
    Group& open_group_named(std::uint32_t number);
    PeerId peer_of(Group& group, std::uint32_t member);
    std::uint32_t member_of(const Group& group, PeerId peer) const;
    void sweep_closing(std::uint32_t wanted);
    void peer_left(Time now, PeerId peer);
    void peer_established(Time now, PeerId peer);
    void open_sends(Time now, GroupOperation& operation, PeerId peer);

    // messages.cpp
    CommandError start_send(Time now, Group& group, StepId id, std::uint8_t traffic_class,
                            const LossRules* loss = nullptr);
    CommandError start_receive(Time now, Group& group, StepId id);
    void step_over(GroupOperation& operation, std::uint32_t step);
    void message_over(Time now, StepId id, const Event& event);
    void message_failed(Time now, StepId id, const Event& event, std::uint64_t bytes);
    void peer_stopped(Time now, std::uint32_t slot, std::uint32_t member, CommandError error);
    void detached_over(Time now, Detached detached, const Event& event);
    void cancel_copies(Time now, const Group& group);
    bool may_copy(PeerId peer, std::uint64_t bytes) const;
    // What a copy counts for: one without bytes is awaited too.
    static std::uint64_t charge(std::uint64_t message_bytes) { return std::max<std::uint64_t>(message_bytes, 1); }
    void end_if_over(Time now, std::uint32_t slot);

    // dataflow.cpp
    static void on_block(void* context, std::uint64_t token, Time now, std::uint32_t offset,
                         const std::uint8_t* payload, std::uint32_t bytes);
    void take_block(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset,
                    const std::uint8_t* payload, std::uint32_t bytes);
    void apply(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset, const std::uint8_t* payload,
               std::uint32_t bytes);
    void apply_waiting(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset, std::uint32_t end);
    void combine(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset, std::uint32_t end);
    void combine_ready(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset, std::uint32_t end,
                       std::size_t operand);
    void produced(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset, std::uint32_t bytes);
    void release(Time now, GroupOperation& operation, std::uint32_t step, std::uint32_t offset, std::uint32_t end);
    static ChunkMemory memory_of(const GroupOperation& operation, Chunk chunk) {
        return operation.memory[static_cast<std::size_t>(chunk.space)][chunk.index];
    }

    // coded.cpp
    static void check_coded(GroupOperation& operation, const CollectiveCommand& command);
    void combine_coded(const GroupOperation& operation, std::uint32_t step, std::uint32_t offset,
                       std::uint32_t end);

    // update.cpp
    static void check_update(const GroupOperation& operation, const CollectiveCommand& command);
    static void update(const GroupOperation& operation, const Schedule::Step& plan, const std::uint8_t* so_far,
                       const std::uint8_t* last, std::uint8_t* target, std::uint32_t offset, std::uint32_t bytes);

    // loss.cpp
    void check_loss(Group& group, const GroupOperation& operation, const CollectiveCommand& command);
    static void allow_loss(SendCommand& send, const LossRules& loss, std::uint32_t member);
    void note_abandoned(GroupOperation& operation, std::uint32_t step, const MessageOutcome& outcome);
    void fill_absent(Time now, std::uint32_t slot, std::uint32_t step, const MessageOutcome& outcome);
    static void finish_alone(const GroupOperation& operation, const Schedule::Step& plan, std::uint8_t* target,
                             std::uint32_t bytes);
    void divide_by_realised(const GroupOperation& operation, const Schedule::Step& plan, std::uint8_t* target,
                            std::uint32_t offset, std::uint32_t end);

    // failure.cpp
    void fail(Time now, Group& group, std::uint32_t slot, const CollectiveResult& why);
    void fail_group(Time now, Group& group, const CollectiveResult& why, std::uint32_t slot);
    void fail_by_peer(Time now, Group& group, std::uint32_t slot, CommandError error, std::uint32_t member);
    void fail_single(Time now, std::uint32_t slot, const CollectiveResult& why);
    void fail_at_once(Time now, const Group& group, std::uint32_t slot);
    void fail_doomed(Time now, std::uint32_t slot);
    std::uint32_t first_unfinished(const Group& group) const;
    void abort_operations(Time now, Group& group);
    void cancel_messages(Time now, std::uint32_t slot);
    void handle_deadline(Time now, std::uint32_t slot);
    bool wait_for_answers(Time now, Group& group, std::uint32_t slot);

    // notice.cpp
    void listen_for_failure(Time now, Group& group);
    void notify_group(Time now, Group& group, const CollectiveResult& why, std::uint32_t from);
    void notify_member(Time now, Group& group, std::uint32_t member);
    void handle_notice(Time now, Group& group, PeerId by, std::uint32_t bytes);
    bool contest(Time now, Group& group, const CollectiveResult& notice, std::uint32_t from);
    bool accept_accusation(Time now, Group& group, const CollectiveResult& notice, std::uint32_t from);

    // mismatch.cpp
    void handle_unexpected(Time now, const Event& event);
    void discard(Time now, std::uint32_t group, const Event& event);
    bool check_signature(Time now, Group& group, const Group::Early& early, const Group::Past& own,
                         std::uint32_t slot);

    // inquiry.cpp
    void send_inquiry(Time now, std::uint32_t group, PeerId peer, std::uint64_t tag);
    void handle_inquiry(Time now, const Event& event);
    void handle_question(Time now, Group* group, const Event& event);
    void ask(Time now, Group& group, GroupOperation& operation);
    void answer(Time now, Group& group, const GroupOperation& operation, const GroupOperation::Asker& asker);
    void note_absence(Time now, Group& group, std::uint32_t slot, std::uint32_t who, bool is_silent);
    void note_waiting(GroupOperation& operation, const Group& group) const;
    bool waits_for_peer(const GroupOperation& operation, std::size_t step) const;
    std::uint32_t find_silent(const Group& group, const GroupOperation& operation) const;
    std::uint32_t find_operation(const Group& group, std::uint32_t sequence) const;
    std::uint32_t find_oldest(const Group& group, std::uint32_t before) const;
    static bool is_asking(Time now, const GroupOperation& operation);

    // A message fits 32 bits, with room for whole granules.
    static constexpr std::uint64_t most_chunk_bytes = UINT32_MAX - 63;
    // Messages for collectives that have not started here, per group, and for groups that are not open: beyond it the
    // oldest is forgotten, and a mismatch with it shows as a time-out.
    static constexpr std::size_t most_early = 1024;
    // Failure notices, questions and answers leave before all data.
    static constexpr std::uint8_t highest_data_class = 6;
    // A rank that has been asked and is not heard of for this long is to blame.
    static constexpr Duration answer_timeout = milliseconds(400);
    // A peer that stopped its part of an operation announces why within this time, or has announced it to others; and
    // what a member that aborts the group had sent before has arrived.
    static constexpr Duration reason_timeout = milliseconds(300);

    Endpoint& endpoint_;
    Bytes max_copied_;
    std::unordered_map<std::uint32_t, std::unique_ptr<Group>> groups_;  // by number
    Slab<GroupOperation> operations_;                                   // until polled as over
    std::unordered_map<std::uint64_t, StepId> owners_;                  // of messages, by key_of
    std::unordered_map<std::uint64_t, Detached> detached_;              // by key_of
    BytesByPeer copied_;
    BytesByPeer lost_;
    std::unordered_map<std::uint64_t, std::uint32_t> listening_;  // Group::failure_receive by key_of, to the group
    std::unordered_map<std::uint64_t, Discarded> discarded_;      // by key_of
    std::vector<std::uint32_t> closing_;                          // numbers of groups in a closing state
    std::vector<Event> unopened_;  // messages for groups that are not open yet, at most most_early
    DeadlineHeap deadlines_;       // by slot of the operation
    RingQueue<CollectiveId> over_;
    MemoryPool pool_;                             // scratch, copies, early blocks
    std::vector<const std::uint8_t*> addresses_;  // of operands, while coded values are combined
};

}  // namespace dlcp

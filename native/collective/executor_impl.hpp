// The inside of CollectiveExecutor: its state, and the parts that work on it, one file each:
//
//   executor.cpp  starting, events, timers, ending      dataflow.cpp  blocks in, results on
//   loss.cpp      what may be given up, and what was      failure.cpp   how a group fails and hears of it
//   inquiry.cpp   who it is that a collective waits for
//
// Invariant: memory of a collective is touched only while it is in its group's `running`; it leaves when every one of
// its messages has had its final event, detached sends aside, which own a copy.
#pragma once

#include <unordered_map>

#include "collective/running.hpp"
#include "collective/tag.hpp"
#include "engine/deadline_heap.hpp"
#include "engine/ring_queue.hpp"
#include "engine/slab.hpp"

namespace dlcp {

class CollectiveExecutor::Impl {
public:
    explicit Impl(Endpoint& endpoint) : endpoint_(endpoint) {}

    // executor.cpp
    bool open_group(Time now, std::uint32_t number, std::span<const std::uint32_t> members, std::uint32_t own);
    void close_group(Time now, std::uint32_t number, bool tell);
    CollectiveId start(Time now, const CollectiveCommand& command);
    CollectiveId start(Time now, const MessageCommand& command);
    bool handle_event(Time now, const Event& event);
    void handle_timer(Time now);
    void stop_waiting(Time now);
    Time next_deadline() const { return deadlines_.next(); }
    bool poll_over(CollectiveId& id, CollectiveResult& result);
    bool draining() const { return !detached_.empty(); }

private:
    // Which step a message of the engine belongs to.
    struct Owner {
        std::uint32_t slot = UINT32_MAX;
        std::uint32_t step = 0;
    };
    // A message that outlives what started it: its memory, and whom its failure concerns.
    struct Detached {
        MemoryPool::Piece memory;
        std::uint32_t group;
        std::uint32_t peer;  // rank in the group
        bool concerns_group;
        // What writes to it, while that is under way.
        Owner writer = {};
        std::uint32_t writer_generation = 0;
    };
    // A receive into nothing, for a message that was on hold when its group had failed.
    struct Discarded {
        MessageId message;
        std::uint32_t group;
    };
    static std::uint64_t key_of(MessageId message) {
        return std::uint64_t{message.generation} << 32 | message.slot;
    }

    // executor.cpp
    Group* find_group(std::uint32_t number);
    Group& open_group_named(std::uint32_t number);
    PeerId peer_of(Group& group, std::uint32_t member);
    std::uint32_t member_of(const Group& group, PeerId peer) const;
    std::uint32_t begin(Time now, Group& group, Duration timeout);
    void bind_memory(Running& running, const CollectiveCommand& command);
    void prepare_steps(Running& running);
    CommandError start_send(Time now, Group& group, std::uint32_t slot, std::uint32_t step,
                            std::uint8_t traffic_class, const LossRules* loss = nullptr);
    CommandError start_receive(Time now, Group& group, std::uint32_t slot, std::uint32_t step);
    CollectiveId id_of(std::uint32_t slot) const { return {slot, running_.generation(slot)}; }
    void step_over(Running& running, std::uint32_t step);
    void message_over(Time now, Owner owner, const Event& event);
    void detached_over(Time now, Detached detached, const Event& event);
    void end_if_over(Time now, std::uint32_t slot);
    void sweep_closing(std::uint32_t wanted);
    void peer_established(Time now, PeerId peer);
    void time_is_up(Time now, std::uint32_t slot);
    bool waits_for_peer(const Running& running, std::size_t step) const;
    void note_waiting(Running& running, const Group& group) const;

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
    void release(Time now, Running& running, std::uint32_t step, std::uint32_t offset, std::uint32_t end);
    ChunkMemory memory_of(const Running& running, Chunk chunk) const {
        return running.memory[static_cast<std::size_t>(chunk.space)][chunk.index];
    }

    // loss.cpp
    void check_loss(Group& group, const Running& running, const CollectiveCommand& command);
    static void allow_loss(SendCommand& send, const LossRules& loss, std::uint32_t member);
    void note_abandoned(Running& running, std::uint32_t step, const MessageOutcome& outcome);
    void fill_absent(Time now, std::uint32_t slot, std::uint32_t step, const MessageOutcome& outcome);
    static void finish_alone(const Running& running, const Schedule::Step& plan, std::uint8_t* target,
                             std::uint32_t bytes);
    void divide_by_realised(const Running& running, const Schedule::Step& plan, std::uint8_t* target,
                            std::uint32_t offset, std::uint32_t end);

    // failure.cpp
    void fail_group(Time now, Group& group, const CollectiveResult& why, std::uint32_t slot);
    void fail_single(Time now, std::uint32_t slot, const CollectiveResult& why);
    void fail_at_once(Time now, const Group& group, std::uint32_t slot);
    void cancel_messages(Time now, std::uint32_t slot);
    void tell(Time now, Group& group, std::uint32_t except);
    void tell_member(Time now, Group& group, std::uint32_t member);
    void told(Time now, Group& group, PeerId by, std::uint32_t bytes);
    bool knows_better(Time now, Group& group, const CollectiveResult& word, std::uint32_t from);
    void listen(Time now, Group& group);
    void unexpected(Time now, const Event& event);
    void discard(Time now, std::uint32_t group, const Event& event);
    // `own`: what this rank called under the number; `slot`: UINT32_MAX if it is over here.
    bool judge(Time now, Group& group, const Group::Early& early, const Group::Past& own, std::uint32_t slot);
    void mismatch(Time now, Group& group, const Group::Early& early, std::uint32_t slot);

    // inquiry.cpp
    void send_note(Time now, std::uint32_t group, PeerId peer, std::uint64_t tag);
    void note_came(Time now, const Event& event);
    void ask(Time now, Group& group, Running& running);
    std::uint32_t silent(const Group& group, const Running& running) const;
    std::uint32_t find_running(const Group& group, std::uint32_t sequence) const;
    std::uint32_t find_oldest(const Group& group, std::uint32_t sequence = UINT32_MAX) const;
    static bool is_asking(Time now, const Running& running);
    void answer(Time now, Group& group, const Running& running, const Running::Asker& asker);
    void is_absent(Time now, Group& group, std::uint32_t slot, std::uint32_t who, bool is_silent);
    // Sequences count on past what a tag holds of them.
    static bool is_before(std::uint32_t one, std::uint32_t other) {
        const std::uint32_t ahead = (other - one) & Tag::sequence_mask;
        return ahead != 0 && ahead <= Tag::sequence_mask / 2;
    }

    // What is said of failures leaves before all data.
    static constexpr std::uint8_t highest_data_class = 6;
    // Who does not answer for this long is to blame.
    static constexpr Duration answer_time = milliseconds(400);

    Endpoint& endpoint_;
    std::unordered_map<std::uint32_t, std::unique_ptr<Group>> groups_;  // by number
    Slab<Running> running_;
    std::unordered_map<std::uint64_t, Owner> owners_;
    std::unordered_map<std::uint64_t, Detached> detached_;
    std::unordered_map<std::uint64_t, std::uint32_t> listening_;  // receives of failures, to the group
    std::unordered_map<std::uint64_t, Discarded> discarded_;
    std::vector<std::uint32_t> closing_;  // groups
    std::vector<Event> unopened_;         // messages for groups that are not open yet
    DeadlineHeap deadlines_;
    RingQueue<CollectiveId> over_;
    MemoryPool pool_;

    friend class CollectiveExecutor;
};

}  // namespace dlcp

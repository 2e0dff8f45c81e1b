// How a group fails: once, with one cause, everywhere.
//
// The first failure of a collective ends all of the group's collectives on this rank and is told to every member that
// this rank has a session with, who tell theirs: the sessions of a collective connect all of its ranks, so word reaches
// everybody, also those who exchange nothing with the rank that is to blame.
//
//    0       4       5       6          8         12         16         20
//   +-------+-------+-------+----------+----------+----------+----------+
//   | magic | error | cause | 0        | culprit  | sequence | reporter |   little endian, 20 bytes
//   +-------+-------+-------+----------+----------+----------+----------+
#include <algorithm>
#include <cstring>

#include "collective/executor_impl.hpp"
#include "engine/bytes.hpp"

namespace dlcp {
namespace {

constexpr std::uint32_t magic = 0x4c494146;  // "FAIL"
constexpr std::uint32_t word_bytes = 20;

// Messages for collectives that have not started here, remembered per group. Beyond it the oldest is forgotten, and
// a mismatch with it shows as a time-out.
constexpr std::size_t most_early = 1024;

}  // namespace

// Hears of failures. A group's ranks may send one each; the first counts.
void CollectiveExecutor::Impl::listen(Time now, Group& group) {
    ReceiveCommand command;
    command.tag = Tag::of_failure(group.number);
    command.buffer = group.failure_buffer.data();
    command.capacity_bytes = static_cast<std::uint32_t>(group.failure_buffer.size());
    const auto received = endpoint_.receive(now, command);
    if (!received) return;
    group.failure_receive = received.value;
    listening_.emplace(key_of(received.value), group.number);
}

void CollectiveExecutor::Impl::tell(Time now, Group& group, std::uint32_t except) {
    const CollectiveResult& why = group.failure;
    for (std::uint32_t member = 0; member < group.members.size(); ++member) {
        if (member == group.own || member == except) continue;
        const PeerId peer = peer_of(group, member);
        if (peer == any_peer || !endpoint_.peer_statistics(peer).established) continue;
        Detached word{pool_.take(word_bytes), group.number, member, false};
        std::uint8_t* out = word.memory.data.get();
        std::memset(out, 0, word_bytes);
        const CollectiveError first = why.error == CollectiveError::group_failed ? why.cause : why.error;
        wire::store32(out, magic);
        out[4] = static_cast<std::uint8_t>(first);
        out[5] = static_cast<std::uint8_t>(why.engine_error);
        wire::store32(out + 8, why.culprit);
        wire::store32(out + 12, why.sequence);
        wire::store32(out + 16, why.error == CollectiveError::group_failed ? why.reporter : group.own);
        SendCommand command;
        command.peer = peer;
        command.tag = Tag::of_failure(group.number);
        command.payload = out;
        command.message_bytes = word_bytes;
        command.traffic_class = 6;  // the highest that data may have
        if (const auto sent = endpoint_.send(now, command))
            detached_.emplace(key_of(sent.value), std::move(word));
        else
            pool_.give_back(std::move(word.memory));
    }
}

void CollectiveExecutor::Impl::told(Time now, Group& group, PeerId by, std::uint32_t bytes) {
    const std::uint8_t* in = group.failure_buffer.data();
    const bool known = bytes == word_bytes && wire::load32(in) == magic &&
                       in[4] <= static_cast<std::uint8_t>(CollectiveError::aborted) &&
                       in[5] <= static_cast<std::uint8_t>(CommandError::wrong_size);
    const std::uint32_t from = member_of(group, by);
    if (!known || from == UINT32_MAX) {  // not one of ours: wait for the next
        if (!group.closing) listen(now, group);
        return;
    }
    if (group.failed) return;
    CollectiveResult why;
    why.error = CollectiveError::group_failed;
    why.cause = static_cast<CollectiveError>(in[4]);
    why.engine_error = static_cast<CommandError>(in[5]);
    why.culprit = wire::load32(in + 8);
    if (why.culprit >= group.members.size()) why.culprit = UINT32_MAX;
    why.sequence = wire::load32(in + 12);
    why.reporter = wire::load32(in + 16);
    if (why.reporter >= group.members.size()) why.reporter = from;
    fail_group(now, group, why, UINT32_MAX);
}

// `slot`: the collective that failed by itself; it ends with `why`, the others with group_failed.
void CollectiveExecutor::Impl::fail_group(Time now, Group& group, const CollectiveResult& why,
                                          std::uint32_t slot) {
    if (group.failed) return;
    group.failed = true;
    group.failure = why;
    group.failure.waiting_for.clear();
    tell(now, group, why.error == CollectiveError::group_failed ? why.culprit : UINT32_MAX);
    for (const std::uint32_t each : std::vector(group.running)) {
        Running& running = running_[each];
        if (running.failed) continue;
        note_waiting(running, group);
        CollectiveResult result = why;
        if (each != slot && why.error != CollectiveError::group_failed) {
            result.error = CollectiveError::group_failed;
            result.cause = why.error;
            result.reporter = group.own;
        }
        result.waiting_for = std::move(running.result.waiting_for);
        result.sent_bytes = running.result.sent_bytes;
        result.received_bytes = running.result.received_bytes;
        running.result = std::move(result);
        running.failed = true;
        cancel_messages(now, each);
        end_if_over(now, each);
    }
}

// A single message may fail alone: who waits for one message from a slow rank has not lost the group.
void CollectiveExecutor::Impl::fail_single(Time now, std::uint32_t slot, const CollectiveResult& why) {
    Running& running = running_[slot];
    running.result = why;
    running.failed = true;
    cancel_messages(now, slot);
    end_if_over(now, slot);
}

void CollectiveExecutor::Impl::fail_at_once(Time now, const Group& group, std::uint32_t slot) {
    Running& running = running_[slot];
    running.failed = true;
    running.result = group.failure;
    if (running.result.error != CollectiveError::group_failed) {
        running.result.cause = running.result.error;
        running.result.error = CollectiveError::group_failed;
        running.result.reporter = group.own;
    }
    end_if_over(now, slot);
}

// Their final events come through handle_event. A copy that has all it is to send goes on alone.
void CollectiveExecutor::Impl::cancel_messages(Time now, std::uint32_t slot) {
    Running& running = running_[slot];
    for (StepState& state : running.steps) {
        if (state.message == MessageId{} || state.arrived || (state.detached && state.over)) continue;
        endpoint_.cancel(now, state.message);  // message_over: its final event is on its way
    }
}

// Somebody sent what nobody here has asked for: early, or by mistake.
void CollectiveExecutor::Impl::unexpected(Time now, const Event& event) {
    const Tag tag = Tag::read(event.tag);
    Group* group = find_group(tag.group);
    if (tag.kind != TagKind::collective || group == nullptr || group->failed) return;
    const Group::Early early{tag.sequence, member_of(*group, event.peer), tag.signature, event.value};
    if (early.peer == UINT32_MAX) return;
    for (const std::uint32_t slot : group->running) {
        const Running& running = running_[slot];
        if (running.single || (running.sequence & Tag::sequence_mask) != tag.sequence) continue;
        judge(now, *group, early, running.signature, slot);
        return;
    }
    const Group::Past& past = group->past[tag.sequence % group->past.size()];
    if (past.sequence == tag.sequence) {
        judge(now, *group, early, past.signature, UINT32_MAX);
        return;
    }
    if (group->early.size() >= most_early) group->early.erase(group->early.begin());
    group->early.push_back(early);
}

// Did `early.peer` call what this rank calls under the same number? If not, the group fails. True: it has.
bool CollectiveExecutor::Impl::judge(Time now, Group& group, const Group::Early& early,
                                     std::uint16_t own_signature, std::uint32_t slot) {
    if (early.signature == own_signature) return false;
    CollectiveResult why;
    why.error = CollectiveError::mismatch;
    why.culprit = early.peer;
    why.sequence = early.sequence;
    why.foreign_signature = early.signature;
    why.foreign_bytes = early.bytes;
    fail_group(now, group, why, slot);
    return true;
}

}  // namespace dlcp

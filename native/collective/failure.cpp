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
#include <string_view>

#include "collective/executor_impl.hpp"
#include "engine/bytes.hpp"

namespace dlcp {
namespace {

constexpr std::uint32_t magic = 0x4c494146;  // "FAIL"
constexpr std::uint32_t word_bytes = 20;

// Messages for collectives that have not started here, remembered per group, and those for groups that are not open.
// Beyond it the oldest is forgotten, and a mismatch with it shows as a time-out.
constexpr std::size_t most_early = 1024;

}  // namespace

// Hears of failures. A group's ranks may send one each; the first counts, the others are taken so that nobody keeps
// them.
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

// Those whose session is not up yet are told when it is.
void CollectiveExecutor::Impl::tell(Time now, Group& group, std::uint32_t except) {
    group.tells = true;
    if (except < group.members.size()) group.told[except] = true;
    for (std::uint32_t member = 0; member < group.members.size(); ++member) tell_member(now, group, member);
}

void CollectiveExecutor::Impl::tell_member(Time now, Group& group, std::uint32_t member) {
    if (member == group.own || group.told[member]) return;
    const PeerId peer = peer_of(group, member);
    if (peer == any_peer || !endpoint_.established(peer)) return;
    group.told[member] = true;
    const CollectiveResult& why = group.failure;
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
    command.traffic_class = highest_data_class;
    if (const auto sent = endpoint_.send(now, command))
        detached_.emplace(key_of(sent.value), std::move(word));
    else
        pool_.give_back(std::move(word.memory));
}

void CollectiveExecutor::Impl::told(Time now, Group& group, PeerId by, std::uint32_t bytes) {
    const std::uint8_t* in = group.failure_buffer.data();
    const bool known = bytes == word_bytes && wire::load32(in) == magic &&
                       in[4] <= static_cast<std::uint8_t>(CollectiveError::aborted);
    const std::uint32_t from = member_of(group, by);
    CollectiveResult why;
    why.error = CollectiveError::group_failed;
    why.cause = static_cast<CollectiveError>(in[4]);
    // Of an error that this side has no name for, the rest of the word is as good.
    why.engine_error = static_cast<CommandError>(in[5]);
    if (std::string_view(name(why.engine_error)) == "unknown") why.engine_error = CommandError::none;
    why.culprit = wire::load32(in + 8);
    if (why.culprit >= group.members.size()) why.culprit = UINT32_MAX;
    why.sequence = wire::load32(in + 12);
    why.reporter = wire::load32(in + 16);
    if (why.reporter >= group.members.size()) why.reporter = from;
    if (!group.closing) listen(now, group);
    if (!known || from == UINT32_MAX) return;  // not one of ours
    if (!knows_better(now, group, why, from)) fail_group(now, group, why, UINT32_MAX);
}

// Told that time was up elsewhere, without a sign that the rank to blame is not there, this rank may have such a sign of
// another; and if it is itself to blame while it waits for others, it asks them first. True: it deals with it.
bool CollectiveExecutor::Impl::knows_better(Time now, Group& group, const CollectiveResult& word,
                                            std::uint32_t from) {
    const bool accuses = word.culprit == group.own;
    if (group.failed || word.cause != CollectiveError::timeout) return false;
    if (!accuses && word.engine_error == CommandError::peer_timeout) return false;
    for (const std::uint32_t slot : group.running) {
        const Running& running = running_[slot];
        if (running.failed || !running.absent_is_silent) continue;
        CollectiveResult why;
        why.error = CollectiveError::timeout;
        why.engine_error = CommandError::peer_timeout;
        why.sequence = running.sequence;
        why.culprit = running.absent;
        fail_group(now, group, why, slot);
        return true;
    }
    if (!accuses) return false;
    const std::uint32_t slot = find_oldest(group, word.sequence + 1);
    if (slot == UINT32_MAX) return false;
    Running& running = running_[slot];
    note_waiting(running, group);
    if (running.result.waiting_for.empty()) return false;
    if (group.accuser != UINT32_MAX) return true;
    group.accuser = from;
    group.accusation = word;
    running.doomed = false;  // by the accuser: so this is the reason
    // Once its own time was up it has asked, and asking anew would take that time again.
    if (!running.asked && !is_asking(now, running)) ask(now, group, running);
    running.accused = running.asked = true;
    running.deadline = std::max(now, running.asked_at + answer_time);
    deadlines_.set(slot, running.deadline);
    return true;
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
    // Copies on their way are of no use any more either.
    std::vector<MessageId> copies;
    for (const auto& [key, each] : detached_)
        if (each.group == group.number && each.concerns_group)
            copies.push_back({static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    for (const MessageId copy : copies) endpoint_.cancel(now, copy);
    group.early.clear();
    endpoint_.discard_unexpected(now, Tag::of_collective(group.number, 0, 0, 0), Tag::group_mask);
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
    if (tag.kind == TagKind::inquiry) return note_came(now, event);
    if (group == nullptr && tag.kind == TagKind::collective) {
        if (unopened_.size() >= most_early) unopened_.erase(unopened_.begin());
        unopened_.push_back(event);
    }
    if (group == nullptr || group->closing) return;
    if (group->failed) {
        // Nobody will ask for it. Words of failure are listened for.
        if (tag.kind != TagKind::failure) discard(now, tag.group, event);
        return;
    }
    if (tag.kind != TagKind::collective) return;
    const Group::Early early{member_of(*group, event.peer), tag, event.value};
    if (early.peer == UINT32_MAX) return;
    if (const std::uint32_t slot = find_running(*group, tag.sequence); slot != UINT32_MAX) {
        const Running& running = running_[slot];
        judge(now, *group, early, {tag.sequence, running.signature, running.schedule}, slot);
        return;
    }
    const Group::Past& past = group->past[tag.sequence % group->past.size()];
    if (past.sequence == tag.sequence) {
        judge(now, *group, early, past, UINT32_MAX);
        return;
    }
    if (group->early.size() >= most_early) group->early.erase(group->early.begin());
    group->early.push_back(early);
}

// Nobody will ask for this: neither side is to keep it.
void CollectiveExecutor::Impl::discard(Time now, std::uint32_t group, const Event& event) {
    if (endpoint_.discard_unexpected(now, event.tag, ~std::uint64_t{0}) > 0) return;
    // On hold: its sender waits for somebody to ask.
    ReceiveCommand command;
    command.peer = event.peer;
    command.tag = event.tag;
    command.capacity_bytes = UINT32_MAX;
    if (const auto received = endpoint_.receive(now, command))
        discarded_.emplace(key_of(received.value), Discarded{received.value, group});
}

// Did `early.peer` call what this rank calls under the same number? If not, the group fails. True: it has.
bool CollectiveExecutor::Impl::judge(Time now, Group& group, const Group::Early& early, const Group::Past& own,
                                     std::uint32_t slot) {
    const std::uint32_t message = early.tag.message_under(own.signature);
    const auto awaits = [&](const Schedule::Step& step) {
        return step.kind == ScheduleOp::Kind::receive && step.peer == early.peer && step.message == message;
    };
    if (early.tag.signature == (own.signature & 0xffff) && std::ranges::any_of(own.schedule->steps(), awaits))
        return false;
    mismatch(now, group, early, slot);
    return true;
}

void CollectiveExecutor::Impl::mismatch(Time now, Group& group, const Group::Early& early, std::uint32_t slot) {
    CollectiveResult why;
    why.error = CollectiveError::mismatch;
    why.culprit = early.peer;
    why.sequence = early.tag.sequence;
    why.foreign_signature = early.tag.signature;
    why.foreign_bytes = early.bytes;
    fail_group(now, group, why, slot);
}

}  // namespace dlcp

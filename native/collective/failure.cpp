// How operations and groups fail: a group fails once, with one cause. The states are in states.hpp.
//
// When the time of an operation is up, the executor first asks the ranks that it waits for (inquiry.cpp), so that the
// rank to blame can be distinguished from those that wait themselves.
#include <algorithm>

#include "collective/executor.hpp"

namespace dlcp {
namespace {

// All asked ranks have answered, and none names a silent rank. A rank farther along the chain of waiting ranks may
// still do so, within this time after the question.
constexpr Duration chain_timeout = milliseconds(700);

}  // namespace

// A single message fails alone, a collective with its group.
void CollectiveExecutor::fail(Time now, Group& group, std::uint32_t slot, const CollectiveResult& why) {
    if (operations_[slot].single)
        fail_single(now, slot, why);
    else
        fail_group(now, group, why, slot);
}

// `slot`: the operation that failed by itself, or no_slot; it ends with `why`, the others with group_failed.
void CollectiveExecutor::fail_group(Time now, Group& group, const CollectiveResult& why, std::uint32_t slot) {
    const bool aborted = why.root_error() == CollectiveError::aborted;
    const std::uint32_t from = aborted ? why.sequence : 0;
    if (group.closing() || from >= group.failed_from) return;
    group.state.apply(GroupStates::Event::failure);
    notify_group(now, group, why, from);
    for (const std::uint32_t each : std::vector(group.operations)) {
        GroupOperation& operation = operations_[each];
        if (operation.ended() || (!operation.single && !group.fails(operation.sequence))) continue;
        if (operation.single && aborted) {
            operation.deadline = std::min(operation.deadline, now + reason_timeout);  // it may be on its way
            deadlines_.set(each, operation.deadline);
            continue;
        }
        note_waiting(operation, group);
        CollectiveResult result = why;
        if (each != slot && why.error != CollectiveError::group_failed) {
            result.error = CollectiveError::group_failed;
            result.cause = why.error;
            result.reporter = group.own;
        }
        result.waiting_for = std::move(operation.result.waiting_for);
        result.sent_bytes = operation.result.sent_bytes;
        result.received_bytes = operation.result.received_bytes;
        operation.result = std::move(result);
        operation.state.apply(OperationStates::Event::failure);
        cancel_messages(now, each);
        end_if_over(now, each);
    }
    cancel_copies(now, group);
    const auto unwanted = [&](const Tag& tag) {
        // Another failure may be announced yet.
        return tag.group == group.number && tag.kind != TagKind::failure &&
               (tag.kind != TagKind::collective || group.fails(tag.sequence));
    };
    std::erase_if(group.early, [&](const Group::Early& each) { return unwanted(each.tag); });
    endpoint_.discard_unexpected(now, [&](std::uint64_t tag) { return unwanted(Tag::read(tag)); });
}

// A message to or from `member` cannot start, or has failed. If the member is lost, the group fails; else a single message
// fails alone.
void CollectiveExecutor::fail_by_peer(Time now, Group& group, std::uint32_t slot, CommandError error,
                                      std::uint32_t member) {
    const GroupOperation& operation = operations_[slot];
    CollectiveResult why;
    why.error = error == CommandError::closed ? CollectiveError::aborted : CollectiveError::peer_failed;
    why.engine_error = error;
    why.culprit = member;
    why.sequence = operation.sequence;
    const bool lost = error == CommandError::peer_timeout || error == CommandError::peer_gone;
    if (operation.single && !lost)
        fail_single(now, slot, why);
    else
        fail_group(now, group, why, slot);
}

// A rank that waits for one message from a slow rank has not lost the group.
void CollectiveExecutor::fail_single(Time now, std::uint32_t slot, const CollectiveResult& why) {
    GroupOperation& operation = operations_[slot];
    operation.result = why;
    operation.state.apply(OperationStates::Event::failure);
    cancel_messages(now, slot);
    end_if_over(now, slot);
}

// An operation that starts in a group that is not open, or a single message in one that was aborted.
void CollectiveExecutor::fail_at_once(Time now, const Group& group, std::uint32_t slot) {
    GroupOperation& operation = operations_[slot];
    operation.state.apply(OperationStates::Event::failure);
    operation.result = group.failure;
    if (operation.result.error != CollectiveError::group_failed) {
        operation.result.cause = operation.result.error;
        operation.result.error = CollectiveError::group_failed;
        operation.result.reporter = group.own;
    }
    cancel_messages(now, slot);
    end_if_over(now, slot);
}

// All collectives before it have ended here, and well: others may still need them. A number that was never called, below
// one that was, counts as not finished.
std::uint32_t CollectiveExecutor::first_unfinished(const Group& group) const {
    const std::uint32_t end = std::min(group.started_end, group.failed_from);
    std::uint32_t first = end;
    for (std::uint32_t number = end, gap = end; number > 0 && end - number < group.past.size();) {
        --number;
        if (group.past[number % group.past.size()].sequence == (number & Tag::sequence_mask))
            first = gap;
        else
            gap = number;
    }
    for (const std::uint32_t slot : group.operations)
        if (!operations_[slot].single && !operations_[slot].ended())
            first = std::min(first, operations_[slot].sequence);
    return first;
}

// This rank closes the group.
void CollectiveExecutor::abort_operations(Time now, Group& group) {
    for (const std::uint32_t slot : std::vector(group.operations)) {
        GroupOperation& operation = operations_[slot];
        if (operation.ended()) continue;
        operation.state.apply(OperationStates::Event::failure);
        operation.result.error = CollectiveError::aborted;
        cancel_messages(now, slot);
        end_if_over(now, slot);
    }
}

// The final event of each comes through handle_event. A detached send that has all of its bytes goes on alone.
void CollectiveExecutor::cancel_messages(Time now, std::uint32_t slot) {
    GroupOperation& operation = operations_[slot];
    for (StepState& state : operation.steps) {
        if (state.message == MessageId{} || state.arrived || (state.detached && state.over)) continue;
        endpoint_.cancel(now, state.message);
    }
}

void CollectiveExecutor::stop_waiting(Time now) {
    for (auto& [number, group] : groups_) {
        for (const std::uint32_t slot : std::vector(group->operations)) {
            if (operations_[slot].doomed()) fail_doomed(now, slot);
            if (operations_[slot].accused()) fail_group(now, *group, group->accusation, no_slot);
        }
    }
}

void CollectiveExecutor::handle_deadline(Time now, std::uint32_t slot) {
    GroupOperation& operation = operations_[slot];
    if (operation.ended()) return;
    Group& group = *find_group(operation.group);
    if (operation.single && !group.is_open() && now >= operation.deadline) return fail_at_once(now, group, slot);
    if (operation.doomed()) return fail_doomed(now, slot);
    note_waiting(operation, group);
    if (now < operation.deadline) {  // it has asked for others
        if (const std::uint32_t who = find_silent(group, operation); who != no_member)
            note_absence(now, group, slot, who, true);
        deadlines_.set(slot, operation.deadline);
        return;
    }
    if (!operation.silent() && !operation.result.waiting_for.empty() && wait_for_answers(now, group, slot)) return;
    // There is nothing more to find out.
    if (operation.absent_rank == no_member && operation.accused()) {
        fail_group(now, group, group.accusation, no_slot);
        return;
    }
    CollectiveResult why;
    why.error = CollectiveError::timeout;
    why.sequence = operation.sequence;
    why.waiting_for = operation.result.waiting_for;
    why.culprit = operation.absent_rank;
    if (operation.silent()) why.engine_error = CommandError::peer_timeout;
    if (why.culprit == no_member && !why.waiting_for.empty()) why.culprit = why.waiting_for.front().peer;
    fail(now, group, slot, why);
}

// A peer has stopped its part, and no reason was announced.
void CollectiveExecutor::fail_doomed(Time now, std::uint32_t slot) {
    const GroupOperation& operation = operations_[slot];
    CollectiveResult why;
    why.sequence = operation.sequence;
    why.culprit = operation.result.culprit;
    if (operation.single || operation.result.engine_error == CommandError::peer_closed) {
        why.error = CollectiveError::peer_failed;
        why.engine_error = operation.single ? CommandError::peer_cancelled : CommandError::peer_closed;
    } else {
        why.error = CollectiveError::group_failed;
        why.cause = CollectiveError::aborted;
        why.reporter = why.culprit;
    }
    fail(now, *find_group(operation.group), slot, why);
}

// Its time is up. True: it waits for answers until its next deadline, or they have ended it.
bool CollectiveExecutor::wait_for_answers(Time now, Group& group, std::uint32_t slot) {
    GroupOperation& operation = operations_[slot];
    if (!operation.asking()) {
        if (!is_asking(now, operation)) ask(now, group, operation);
        operation.inquiry.apply(InquiryStates::Event::time_up);
        deadlines_.set(slot, operation.asked_at + answer_timeout);
        return true;
    }
    if (const std::uint32_t who = find_silent(group, operation); who != no_member) {
        if (!operation.single) {
            note_absence(now, group, slot, who, true);
            return true;
        }
        operation.absent_rank = who;
        operation.absence.apply(AbsenceStates::Event::no_answer);
        return false;
    }
    if (operation.single || now - operation.asked_at >= chain_timeout) return false;
    deadlines_.set(slot, operation.asked_at + chain_timeout);
    return true;
}

}  // namespace dlcp

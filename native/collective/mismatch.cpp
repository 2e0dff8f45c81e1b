// Messages that no operation on this rank waits for: sent early, or by a rank that called something else.
#include <algorithm>

#include "collective/executor.hpp"

namespace dlcp {

void CollectiveExecutor::handle_unexpected(Time now, const Event& event) {
    const Tag tag = Tag::read(event.tag);
    Group* group = find_group(tag.group);
    if (tag.kind == TagKind::inquiry) return handle_inquiry(now, event);
    if (group == nullptr && tag.kind == TagKind::collective) {
        if (unopened_.size() >= most_early) unopened_.erase(unopened_.begin());
        unopened_.push_back(event);
    }
    if (group == nullptr || group->closing()) return;
    if (tag.kind == TagKind::collective ? group->fails(tag.sequence) : !group->is_open()) {
        // No operation will receive it. Failure notices have a receive of their own.
        if (tag.kind != TagKind::failure) discard(now, tag.group, event);
        return;
    }
    if (tag.kind != TagKind::collective) return;
    const Group::Early early{member_of(*group, event.peer), tag, event.value};
    if (early.peer == no_member) return;
    if (const std::uint32_t slot = find_operation(*group, tag.sequence); slot != no_slot) {
        const GroupOperation& operation = operations_[slot];
        check_signature(now, *group, early, {tag.sequence, operation.signature, operation.schedule}, slot);
        return;
    }
    const Group::Past& past = group->past[tag.sequence % group->past.size()];
    if (past.sequence == tag.sequence) {
        check_signature(now, *group, early, past, no_slot);
        return;
    }
    if (group->early.size() >= most_early) group->early.erase(group->early.begin());
    group->early.push_back(early);
}

// No operation will receive this message, so neither side should keep it.
void CollectiveExecutor::discard(Time now, std::uint32_t group, const Event& event) {
    if (endpoint_.discard_unexpected(now, [&](std::uint64_t tag) { return tag == event.tag; }) > 0) return;
    // On hold: its sender waits for a receive.
    ReceiveCommand command;
    command.peer = event.peer;
    command.tag = event.tag;
    command.capacity_bytes = UINT32_MAX;
    if (const auto received = endpoint_.receive(now, command))
        discarded_.emplace(key_of(received.value), Discarded{received.value, group});
}

// `own`: what this rank called under the number of `early`; `slot`: its operation, or no_slot if that is over. The group
// fails unless this rank waits, or waited, for the message: then `early.peer` called the same. True: it has failed.
bool CollectiveExecutor::check_signature(Time now, Group& group, const Group::Early& early, const Group::Past& own,
                                         std::uint32_t slot) {
    const std::uint32_t message = early.tag.message_under(own.signature);
    const auto awaits = [&](const Schedule::Step& step) {
        return step.kind == ScheduleOp::Kind::receive && step.peer == early.peer && step.message == message;
    };
    if (early.tag.signature == (own.signature & 0xffff) && std::ranges::any_of(own.schedule->steps(), awaits))
        return false;
    CollectiveResult why;
    why.error = CollectiveError::mismatch;
    why.culprit = early.peer;
    why.sequence = early.tag.sequence;
    why.foreign_signature = early.tag.signature;
    why.foreign_bytes = early.bytes;
    fail_group(now, group, why, slot);
    return true;
}

}  // namespace dlcp

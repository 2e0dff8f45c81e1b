// Messages that nobody on this rank waits for: sent early, or by a rank that called something else.
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
    if (!group->is_open()) {
        // No operation will receive it. Failure notices have a receive of their own.
        if (tag.kind != TagKind::failure) discard(now, tag.group, event);
        return;
    }
    if (tag.kind != TagKind::collective) return;
    const Group::Early early{tag.sequence, member_of(*group, event.peer), tag.signature, event.value};
    if (early.peer == no_member) return;
    if (const std::uint32_t slot = find_operation(*group, tag.sequence); slot != no_slot) {
        check_signature(now, *group, early, operations_[slot].signature, slot);
        return;
    }
    const Group::Past& past = group->past[tag.sequence % group->past.size()];
    if (past.sequence == tag.sequence) {
        check_signature(now, *group, early, past.signature, no_slot);
        return;
    }
    if (group->early.size() >= most_early) group->early.erase(group->early.begin());
    group->early.push_back(early);
}

// No operation will receive this message, so neither side is to keep it.
void CollectiveExecutor::discard(Time now, std::uint32_t group, const Event& event) {
    if (endpoint_.discard_unexpected(now, event.tag, ~std::uint64_t{0}) > 0) return;
    // On hold: its sender waits for a receive.
    ReceiveCommand command;
    command.peer = event.peer;
    command.tag = event.tag;
    command.capacity_bytes = UINT32_MAX;
    if (const auto received = endpoint_.receive(now, command))
        discarded_.emplace(key_of(received.value), Discarded{received.value, group});
}

// The group fails unless `early.peer` called what this rank called under the same number. True: it has failed.
bool CollectiveExecutor::check_signature(Time now, Group& group, const Group::Early& early,
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

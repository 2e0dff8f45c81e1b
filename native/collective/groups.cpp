// Groups: their members, opening and closing them.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "collective/executor.hpp"

namespace dlcp {

using Kind = ScheduleOp::Kind;

Group* CollectiveExecutor::find_group(std::uint32_t number) {
    const auto found = groups_.find(number);
    return found == groups_.end() ? nullptr : found->second.get();
}

Group& CollectiveExecutor::open_group_named(std::uint32_t number) {
    Group* group = find_group(number);
    if (group == nullptr || group->closing())
        throw std::invalid_argument("group " + std::to_string(number) + " is not open");
    return *group;
}

PeerId CollectiveExecutor::peer_of(Group& group, std::uint32_t member) {
    PeerId& known = group.peers[member];
    if (known == any_peer)
        if (const auto found = endpoint_.find_peer(group.members[member])) known = *found;
    return known;
}

std::uint32_t CollectiveExecutor::member_of(const Group& group, PeerId peer) const {
    const auto found = std::find(group.members.begin(), group.members.end(), endpoint_.rank_of(peer));
    return found == group.members.end() ? no_member : static_cast<std::uint32_t>(found - group.members.begin());
}

bool CollectiveExecutor::open_group(Time now, std::uint32_t number, std::span<const std::uint32_t> members,
                                    std::uint32_t own) {
    if (number >= Tag::groups)
        throw std::invalid_argument("group is " + std::to_string(number) + "; accepted: below " +
                                    std::to_string(Tag::groups));
    if (own >= members.size())
        throw std::invalid_argument("own is " + std::to_string(own) + "; accepted: below the number of members, " +
                                    std::to_string(members.size()));
    sweep_closing(number);
    auto& place = groups_[number];
    if (place) return false;
    place = std::make_unique<Group>();
    Group& group = *place;
    group.number = number;
    group.own = own;
    group.members.assign(members.begin(), members.end());
    group.peers.assign(members.size(), any_peer);
    group.notified.assign(members.size(), false);
    listen_for_failure(now, group);
    // Messages of members that opened the group before this rank did.
    std::vector<Event> early;
    std::erase_if(unopened_, [&](const Event& event) {
        if (Tag::read(event.tag).group != number) return false;
        early.push_back(event);
        return true;
    });
    for (const Event& event : early) handle_unexpected(now, event);
    return true;
}

void CollectiveExecutor::close_group(Time now, std::uint32_t number, bool notify) {
    Group* group = find_group(number);
    if (group == nullptr || group->closing()) return;
    group->state.apply(notify ? GroupStates::Event::close : GroupStates::Event::close_quietly);
    closing_.push_back(number);
    CollectiveResult why;
    why.error = CollectiveError::aborted;
    why.culprit = group->own;
    why.sequence = first_unfinished(*group);
    if (notify && why.sequence < group->failed_from) notify_group(now, *group, why, why.sequence);
    abort_operations(now, *group);
    if (notify) cancel_copies(now, *group);
    if (listening_.contains(key_of(group->failure_receive))) endpoint_.cancel(now, group->failure_receive);
    for (const auto& [key, each] : discarded_)
        if (each.group == number) endpoint_.cancel(now, each.message);
    // A later group of this number would take it for its own.
    endpoint_.discard_unexpected(now, [&](std::uint64_t tag) { return Tag::read(tag).group == number; });
}

// Frees closed groups of which the engine has no message any more. A group that has failed stays for members that have
// not been notified, until its number is `wanted` again.
void CollectiveExecutor::sweep_closing(std::uint32_t wanted) {
    std::erase_if(closing_, [&](std::uint32_t number) {
        const Group& group = *groups_.at(number);
        if (!group.operations.empty() || listening_.contains(key_of(group.failure_receive))) return false;
        if (number != wanted && group.notifies() &&
            std::count(group.notified.begin(), group.notified.end(), false) > 1)
            return false;  // this rank itself is never notified
        groups_.erase(number);
        return true;
    });
}

// Receives from anyone end with the last member that could send to them. What names the peer has had its final event, and
// what starts from now on asks the engine.
void CollectiveExecutor::peer_left(Time now, PeerId peer) {
    for (auto& [number, group] : groups_) {
        if (member_of(*group, peer) == no_member) continue;
        const auto [error, member] = group->departure(endpoint_, no_member);
        if (error == CommandError::none) continue;
        for (const std::uint32_t slot : std::vector(group->operations)) {
            const GroupOperation& operation = operations_[slot];
            const bool from_anyone = operation.single && !operation.ended() && operation.steps[0].peer == any_peer;
            // One that is over in the engine has its event under way.
            if (from_anyone && !endpoint_.outcome(operation.steps[0].message))
                fail_by_peer(now, *group, slot, error, member);
        }
    }
}

// Failure notices that had to wait for the session leave, and complete blocks of sends that did.
void CollectiveExecutor::peer_established(Time now, PeerId peer) {
    for (auto& [number, group] : groups_) {
        if (group->notifies())
            if (const std::uint32_t member = member_of(*group, peer); member != no_member)
                notify_member(now, *group, member);
        for (const std::uint32_t slot : std::vector(group->operations)) {
            GroupOperation& operation = operations_[slot];
            if (operation.single || operation.ended()) continue;
            open_sends(now, operation, peer);
            end_if_over(now, slot);
        }
    }
}

// With the session the size of blocks is final.
void CollectiveExecutor::open_sends(Time now, GroupOperation& operation, PeerId peer) {
    for (std::uint32_t step = 0; step < operation.steps.size(); ++step) {
        StepState& state = operation.steps[step];
        const Schedule::Step& plan = operation.schedule->steps()[step];
        if (plan.kind != Kind::send || state.open || state.over || !(state.peer == peer)) continue;
        state.open = true;
        if (plan.operands[0].producer == Schedule::none) continue;
        const Granules& ready = operation.steps[plan.operands[0].producer].produced;
        const auto end = static_cast<std::uint32_t>(state.memory.bytes);
        std::uint32_t first = 0, last = 0;
        for (std::uint32_t at = 0; at < end && ready.next_run(at, end, true, first, last); at = last)
            release(now, operation, step, first, last);
    }
}

}  // namespace dlcp

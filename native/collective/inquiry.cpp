// Who is it that a collective waits for?
//
// When time is up, most ranks wait for one that waits itself: in a ring all but one do. So whoever is waited for is asked
// whether it has called this collective at all. Who has not says so. Who has asks those that it waits for in turn, though
// its own time may not be up, and passes on what it hears; and who does not even answer is taken for absent by the one that
// asked. So the one to blame is known to everybody whose time is up within a round trip per rank between them.
//
// Questions and answers are messages without bytes that nobody posts a receive for: the tag says it all, and the announcement
// that it came (EndpointConfig::announce_unexpected) is how it is heard, also by a rank that has not opened the group.
#include <algorithm>

#include "collective/executor_impl.hpp"

namespace dlcp {

void CollectiveExecutor::Impl::send_note(Time now, std::uint32_t number, PeerId peer, std::uint64_t tag) {
    if (peer == any_peer || !endpoint_.established(peer)) return;
    SendCommand command;
    command.peer = peer;
    command.tag = tag;
    command.traffic_class = highest_data_class;
    if (const auto sent = endpoint_.send(now, command))
        detached_.emplace(key_of(sent.value), Detached{{}, number, UINT32_MAX, false});
}

// Asks those whose part is missing, and whether they are there at all.
void CollectiveExecutor::Impl::ask(Time now, Group& group, Running& running) {
    running.asked_at = now;
    for (const CollectiveResult::Waiting& each : running.result.waiting_for) {
        const PeerId peer = peer_of(group, each.peer);
        if (peer == any_peer) continue;
        endpoint_.probe(peer);
        if (!running.single && each.for_arrival)
            send_note(now, group.number, peer, Tag::of_inquiry(group.number, running.sequence, Tag::question));
    }
}

// The first that is waited for and has not given a sign of life since it was asked.
std::uint32_t CollectiveExecutor::Impl::silent(const Group& group, const Running& running) const {
    for (const CollectiveResult::Waiting& each : running.result.waiting_for) {
        const PeerStatistics statistics = endpoint_.peer_statistics(group.peers[each.peer]);
        if (!statistics.established || statistics.last_heard < running.asked_at) return each.peer;
    }
    return UINT32_MAX;
}

std::uint32_t CollectiveExecutor::Impl::find_running(const Group& group, std::uint32_t sequence) const {
    for (const std::uint32_t slot : group.running)
        if (!running_[slot].single && (running_[slot].sequence & Tag::sequence_mask) == sequence) return slot;
    return UINT32_MAX;
}

void CollectiveExecutor::Impl::note_came(Time now, const Event& event) {
    const Tag tag = Tag::read(event.tag);
    const std::uint32_t said = Tag::inquiry_of(event.tag);
    Group* group = find_group(tag.group);
    const bool open = group != nullptr && !group->closing;
    discard(now, tag.group, event);
    const std::uint32_t slot = open ? find_running(*group, tag.sequence) : UINT32_MAX;
    const std::uint32_t from = open ? member_of(*group, event.peer) : UINT32_MAX;
    if (said != Tag::question) {
        const std::uint32_t who = said == Tag::not_called ? from : said;
        if (slot != UINT32_MAX && who < group->members.size()) is_absent(now, *group, slot, who);
        return;
    }
    if (open && group->failed) return;  // it is being told
    if (slot == UINT32_MAX) {
        if (!open || group->past[tag.sequence % group->past.size()].sequence != tag.sequence)
            send_note(now, tag.group, event.peer, Tag::of_inquiry(tag.group, tag.sequence, Tag::not_called));
        return;
    }
    if (from == UINT32_MAX) return;
    Running& running = running_[slot];
    if (running.absent != UINT32_MAX) {
        send_note(now, tag.group, event.peer, Tag::of_inquiry(tag.group, tag.sequence, running.absent));
        return;
    }
    running.askers.push_back(from);
    if (running.asked || running.asked_for_others) return;
    running.asked_for_others = true;
    note_waiting(running, *group);
    ask(now, *group, running);
    deadlines_.set(slot, std::min(running.deadline, now + answer_time));
}

// Those who asked hear of it; and if the time is up here, that was it.
void CollectiveExecutor::Impl::is_absent(Time now, Group& group, std::uint32_t slot, std::uint32_t who) {
    Running& running = running_[slot];
    if (running.failed || running.absent != UINT32_MAX) return;
    running.absent = who;
    for (const std::uint32_t asker : running.askers)
        send_note(now, group.number, peer_of(group, asker), Tag::of_inquiry(group.number, running.sequence, who));
    running.askers.clear();
    if (!running.asked) return;
    CollectiveResult why;
    why.error = CollectiveError::timeout;
    why.sequence = running.sequence;
    why.culprit = who;
    fail_group(now, group, why, slot);
}

}  // namespace dlcp

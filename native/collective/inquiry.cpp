// Who is it that a collective waits for?
//
// When time is up, most ranks wait for one that waits itself: in a ring all but one do. So whoever is waited for is asked
// whether it has called this collective at all. Who has not says so. Who has asks those that it waits for in turn, though
// its own time may not be up, and passes on what it hears; and who does not even answer is taken for absent by the one that
// asked. So the one to blame is known to everybody whose time is up within a round trip per rank between them. Who has not
// called it because an earlier one keeps him asks for that, and passes on what he hears of it.
//
// A rank that does not answer is known to be gone; one that says that it has not called may only be late, and for the same
// reason. So the former counts for more, and who hears of the latter waits a little for the former.
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

// Have those that it waits for been asked just now?
bool CollectiveExecutor::Impl::is_asking(Time now, const Running& running) {
    return (running.asked || running.asked_for_others) && now - running.asked_at < answer_time;
}

// The first that is waited for and has not given a sign of life since it was asked.
std::uint32_t CollectiveExecutor::Impl::silent(const Group& group, const Running& running) const {
    for (const CollectiveResult::Waiting& each : running.result.waiting_for) {
        if (each.peer == group.accuser) continue;
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

// The first that the group has not finished, of those that came before `sequence` if that is given.
std::uint32_t CollectiveExecutor::Impl::find_oldest(const Group& group, std::uint32_t sequence) const {
    std::uint32_t oldest = UINT32_MAX;
    for (const std::uint32_t slot : group.running) {
        const Running& running = running_[slot];
        if (running.single || running.failed) continue;
        if (sequence != UINT32_MAX && !is_before(running.sequence, sequence)) continue;
        if (oldest == UINT32_MAX || is_before(running.sequence, running_[oldest].sequence)) oldest = slot;
    }
    return oldest;
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
        const bool is_silent = said != Tag::not_called && (said & Tag::silent) != 0;
        const std::uint32_t who = said == Tag::not_called ? from : said & ~Tag::silent;
        if (slot != UINT32_MAX && who < group->members.size() && who != group->own)
            is_absent(now, *group, slot, who, is_silent);
        return;
    }
    if (group != nullptr && group->tells) return;  // it has failed, and whoever asks is being told
    std::uint32_t keeps = slot;
    if (keeps == UINT32_MAX) {
        if (open && group->past[tag.sequence % group->past.size()].sequence == tag.sequence) return;
        if (open) keeps = find_oldest(*group, tag.sequence);
        if (keeps != UINT32_MAX) note_waiting(running_[keeps], *group);
        if (keeps == UINT32_MAX || running_[keeps].result.waiting_for.empty()) {
            send_note(now, tag.group, event.peer, Tag::of_inquiry(tag.group, tag.sequence, Tag::not_called));
            return;
        }
    }
    if (from == UINT32_MAX) return;
    Running& running = running_[keeps];
    const Running::Asker asker{from, tag.sequence};
    // Who repeats a question is one asker still.
    if (std::find(running.askers.begin(), running.askers.end(), asker) == running.askers.end())
        running.askers.push_back(asker);
    if (running.absent != UINT32_MAX) answer(now, *group, running, asker);
    if (running.asked || running.doomed || running.absent_is_silent || is_asking(now, running)) return;
    running.asked_for_others = true;
    note_waiting(running, *group);
    ask(now, *group, running);
    deadlines_.set(keeps, std::min(running.deadline, now + answer_time));
}

void CollectiveExecutor::Impl::answer(Time now, Group& group, const Running& running,
                                      const Running::Asker& asker) {
    if (asker.member == running.absent) return;
    const std::uint32_t said = running.absent | (running.absent_is_silent ? Tag::silent : 0);
    send_note(now, group.number, peer_of(group, asker.member),
              Tag::of_inquiry(group.number, asker.sequence, said));
}

// Those who asked hear of it; and if the time is up here and nothing better is to be heard, that was it.
void CollectiveExecutor::Impl::is_absent(Time now, Group& group, std::uint32_t slot, std::uint32_t who,
                                         bool is_silent) {
    Running& running = running_[slot];
    if (running.failed || running.absent_is_silent) return;
    if (running.absent != UINT32_MAX && !is_silent) return;
    running.absent = who;
    running.absent_is_silent = is_silent;
    for (const Running::Asker& asker : running.askers) answer(now, group, running, asker);
    if (!running.asked || !is_silent) return;
    CollectiveResult why;
    why.error = CollectiveError::timeout;
    why.engine_error = CommandError::peer_timeout;
    why.sequence = running.sequence;
    why.culprit = who;
    fail_group(now, group, why, slot);
}

}  // namespace dlcp

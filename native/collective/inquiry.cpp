// Finds the rank that a collective waits for.
//
// When time is up, most ranks wait for one that waits itself: in a ring all but one do. So a rank asks those that it
// waits for whether they have called this collective at all.
//
//   - A rank that has not called it says so.
//   - A rank that has called it asks the ranks that it waits for in turn, though its own time may not be up, and passes on
//     what it learns.
//   - A rank that has not called it because an earlier collective blocks it asks about that one, and passes on what it
//     learns.
//   - A rank that does not answer at all is silent to the rank that asked it.
//
// So every rank whose time is up learns which rank is to blame within a round trip per rank between them. A silent rank
// is known to be gone; one that has not called may only be late, perhaps for the same reason. So a silent rank is
// blamed first. A rank that learns only of one that has not called waits a little longer for news of a silent one.
//
// Questions and answers are messages without bytes and without a receive. The tag carries everything, and the engine's
// event of its arrival (EndpointConfig::announce_unexpected) delivers it, even to a rank that has not opened the group.
#include <algorithm>

#include "collective/executor.hpp"

namespace dlcp {
namespace {

using Kind = ScheduleOp::Kind;

// Peers named in a result at most.
constexpr std::size_t most_waiting = 16;

}  // namespace

void CollectiveExecutor::send_inquiry(Time now, std::uint32_t number, PeerId peer, std::uint64_t tag) {
    if (peer == any_peer || !endpoint_.established(peer)) return;
    SendCommand command;
    command.peer = peer;
    command.tag = tag;
    command.traffic_class = highest_data_class;
    if (const auto sent = endpoint_.send(now, command))
        detached_.emplace(key_of(sent.value), Detached{{}, number, no_member, false});
}

// Asks the ranks whose part is missing, and probes all that it waits for.
void CollectiveExecutor::ask(Time now, Group& group, GroupOperation& operation) {
    operation.asked_at = now;
    for (const CollectiveResult::Waiting& each : operation.result.waiting_for) {
        const PeerId peer = peer_of(group, each.peer);
        if (peer == any_peer) continue;
        endpoint_.probe(peer);
        if (!operation.single && each.for_arrival)
            send_inquiry(now, group.number, peer,
                         Tag::of_inquiry(group.number, operation.sequence, Tag::question));
    }
}

// The ranks that it waits for were asked so recently that their answers may still come.
bool CollectiveExecutor::is_asking(Time now, const GroupOperation& operation) {
    return operation.inquiry != InquiryStates::State::quiet && now - operation.asked_at < answer_timeout;
}

// The first rank waited for that has not been heard of since it was asked.
std::uint32_t CollectiveExecutor::find_silent(const Group& group, const GroupOperation& operation) const {
    for (const CollectiveResult::Waiting& each : operation.result.waiting_for) {
        if (each.peer == group.accuser) continue;
        const PeerStatistics statistics = endpoint_.peer_statistics(group.peers[each.peer]);
        if (!statistics.established || statistics.last_heard < operation.asked_at) return each.peer;
    }
    return no_member;
}

std::uint32_t CollectiveExecutor::find_operation(const Group& group, std::uint32_t sequence) const {
    for (const std::uint32_t slot : group.operations)
        if (!operations_[slot].single && (operations_[slot].sequence & Tag::sequence_mask) == sequence)
            return slot;
    return no_slot;
}

// The group's oldest collective of those before `before` that has not ended.
std::uint32_t CollectiveExecutor::find_oldest(const Group& group, std::uint32_t before) const {
    std::uint32_t oldest = no_slot;
    for (const std::uint32_t slot : group.operations) {
        const GroupOperation& operation = operations_[slot];
        if (operation.single || operation.ended()) continue;
        if (!Tag::is_before(operation.sequence, before)) continue;
        if (oldest == no_slot || Tag::is_before(operation.sequence, operations_[oldest].sequence)) oldest = slot;
    }
    return oldest;
}

void CollectiveExecutor::handle_inquiry(Time now, const Event& event) {
    const Tag tag = Tag::read(event.tag);
    const std::uint32_t said = Tag::inquiry_of(event.tag);
    Group* group = find_group(tag.group);
    discard(now, tag.group, event);
    const bool notified =
        group != nullptr && group->notifies() && (group->closing() || group->fails(tag.sequence));
    if (group != nullptr && group->closing()) group = nullptr;
    if (said == Tag::question) {
        if (!notified) handle_question(now, group, event);  // else the failure notice is the answer
        return;
    }
    if (group == nullptr) return;
    const bool is_silent = said != Tag::not_called && (said & Tag::silent) != 0;
    const std::uint32_t who = said == Tag::not_called ? member_of(*group, event.peer) : said & ~Tag::silent;
    const std::uint32_t slot = find_operation(*group, tag.sequence);
    if (slot != no_slot && who < group->members.size() && who != group->own)
        note_absence(now, *group, slot, who, is_silent);
}

// `group`: nullptr if this rank has not opened it, or is closing it.
void CollectiveExecutor::handle_question(Time now, Group* group, const Event& event) {
    const Tag tag = Tag::read(event.tag);
    std::uint32_t slot = no_slot;
    if (group != nullptr) {
        slot = find_operation(*group, tag.sequence);
        if (slot == no_slot && group->past[tag.sequence % group->past.size()].sequence == tag.sequence) return;
        if (slot == no_slot) {
            // Not called, perhaps because an earlier one waits.
            slot = find_oldest(*group, tag.sequence);
            if (slot != no_slot) note_waiting(operations_[slot], *group);
            if (slot != no_slot && operations_[slot].result.waiting_for.empty()) slot = no_slot;
        }
    }
    if (slot == no_slot) {
        send_inquiry(now, tag.group, event.peer, Tag::of_inquiry(tag.group, tag.sequence, Tag::not_called));
        return;
    }
    const std::uint32_t from = member_of(*group, event.peer);
    if (from == no_member) return;
    GroupOperation& operation = operations_[slot];
    const GroupOperation::Asker asker{from, tag.sequence};
    if (std::find(operation.askers.begin(), operation.askers.end(), asker) == operation.askers.end())
        operation.askers.push_back(asker);
    if (operation.absent_rank != no_member) answer(now, *group, operation, asker);
    if (operation.asking() || operation.doomed() || operation.silent() || is_asking(now, operation)) return;
    operation.inquiry.apply(InquiryStates::Event::question);
    note_waiting(operation, *group);
    ask(now, *group, operation);
    deadlines_.set(slot, std::min(operation.deadline, now + answer_timeout));
}

void CollectiveExecutor::answer(Time now, Group& group, const GroupOperation& operation,
                                const GroupOperation::Asker& asker) {
    if (asker.member == operation.absent_rank) return;
    const std::uint32_t said = operation.absent_rank | (operation.silent() ? Tag::silent : 0);
    send_inquiry(now, group.number, peer_of(group, asker.member),
                 Tag::of_inquiry(group.number, asker.sequence, said));
}

// `who` has not called the collective, or does not answer. Passes it on to the ranks that asked. A silent rank ends the
// collective if its own time is up.
void CollectiveExecutor::note_absence(Time now, Group& group, std::uint32_t slot, std::uint32_t who,
                                      bool is_silent) {
    GroupOperation& operation = operations_[slot];
    const auto event = is_silent ? AbsenceStates::Event::no_answer : AbsenceStates::Event::said_not_called;
    if (operation.ended() || !operation.absence.may(event)) return;
    operation.absent_rank = who;
    operation.absence.apply(event);
    for (const GroupOperation::Asker& asker : operation.askers) answer(now, group, operation, asker);
    if (!operation.asking() || !is_silent) return;
    CollectiveResult why;
    why.error = CollectiveError::timeout;
    why.engine_error = CommandError::peer_timeout;
    why.sequence = operation.sequence;
    why.culprit = who;
    fail_group(now, group, why, slot);
}

// A send waits for its peer unless its bytes are still being computed, or a copy of them has left.
bool CollectiveExecutor::waits_for_peer(const GroupOperation& operation, std::size_t step) const {
    const StepState& state = operation.steps[step];
    if (state.left_bytes == 0) return !state.detached;
    if (operation.single || state.open) return false;
    const std::uint32_t producer = operation.schedule->steps()[step].operands[0].producer;
    return producer != Schedule::none && operation.steps[producer].left_bytes == 0;  // for its session
}

// Lists the ranks that an operation waits for: those whose part is missing, then those that have not received all of
// ours.
void CollectiveExecutor::note_waiting(GroupOperation& operation, const Group& group) const {
    auto& waiting = operation.result.waiting_for;
    waiting.clear();
    const auto note = [&](std::uint32_t peer, bool for_arrival, std::uint64_t bytes) {
        const auto known = std::find_if(waiting.begin(), waiting.end(), [&](const auto& each) {
            return each.peer == peer && each.for_arrival == for_arrival;
        });
        if (known != waiting.end())
            known->missing_bytes += bytes;
        else if (waiting.size() < most_waiting)
            waiting.push_back({peer, for_arrival, bytes});
    };
    for (const Kind kind : {Kind::receive, Kind::send}) {
        for (std::size_t i = 0; i < operation.steps.size(); ++i) {
            const StepState& state = operation.steps[i];
            const bool sends =
                operation.single ? operation.single_sends : operation.schedule->steps()[i].kind == Kind::send;
            const bool receives =
                operation.single ? !operation.single_sends : operation.schedule->steps()[i].kind == Kind::receive;
            if (state.over || state.arrived || !(kind == Kind::send ? sends : receives)) continue;
            if (sends && !waits_for_peer(operation, i)) continue;
            const std::uint32_t peer =
                operation.single ? member_of(group, state.peer) : operation.schedule->steps()[i].peer;
            if (peer != no_member) note(peer, receives, sends ? state.memory.bytes : state.left_bytes);
        }
    }
}

}  // namespace dlcp

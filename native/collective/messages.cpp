// The messages of operations: how they start and end, and with them the operation.
#include <algorithm>
#include <cstring>

#include "collective/executor.hpp"

namespace dlcp {
namespace {

// Messages up to this length leave from a copy, so that a collective waits neither for their acknowledgement nor for its
// repeat. Copying this much takes some 20 us.
constexpr std::uint64_t copied_bytes = 256 * 1024;

// After its ranks have been asked, a doomed operation fails within this time however late the reason is announced: so it
// has ended within a second after its time was up.
constexpr Duration end_timeout = milliseconds(900);

}  // namespace

CommandError CollectiveExecutor::start_send(Time now, Group& group, StepId id, std::uint8_t traffic_class,
                                            const LossRules* loss) {
    GroupOperation& operation = operations_[id.slot];
    StepState& state = operation.steps[id.step];
    SendCommand command;
    std::uint32_t member = 0;
    if (operation.single) {
        member = member_of(group, state.peer);
        command.tag = operation.single_tag;
    } else {
        const Schedule::Step& plan = operation.schedule->steps()[id.step];
        member = plan.peer;
        state.peer = peer_of(group, member);
        command.tag = Tag::of_collective(group.number, operation.sequence, plan.message, operation.signature);
        command.gated = plan.operands[0].producer != Schedule::none;
        if (plan.lossy && loss != nullptr) allow_loss(command, *loss, member);
    }
    if (const auto left = group.departure(endpoint_, member); left.error != CommandError::none) return left.error;
    command.peer = state.peer;
    command.payload = state.memory.data;
    command.message_bytes = static_cast<std::uint32_t>(state.memory.bytes);
    command.traffic_class = traffic_class;
    command.unit_bytes = operation.unit_bytes();
    // A collective waits for a lossy message: its outcome says what was given up.
    state.detached = operation.copies_short && command.delivery == Delivery::reliable &&
                     may_copy(state.peer, state.memory.bytes);
    Detached detached{{}, group.number, member, true, id, operations_.generation(id.slot), command.tag};
    if (state.detached && state.memory.data != nullptr && state.memory.bytes > 0) {
        detached.memory = pool_.take(state.memory.bytes);
        state.copy = detached.memory.data.get();
        if (!command.gated) std::memcpy(state.copy, state.memory.data, state.memory.bytes);
        command.payload = state.copy;
    }
    const auto sent = endpoint_.send(now, command);
    if (!sent) {
        pool_.give_back(std::move(detached.memory));
        state.detached = false;
        return sent.error;
    }
    state.message = sent.value;
    state.open = endpoint_.established(state.peer);
    operation.result.sent_bytes += state.memory.bytes;
    if (state.detached) {
        detached_.emplace(key_of(sent.value), std::move(detached));
        copied_[state.peer.value] += charge(state.memory.bytes);
    } else {
        owners_.emplace(key_of(sent.value), id);
        ++operation.messages_left;
    }
    if (command.gated) return CommandError::none;
    state.left_bytes = 0;
    if (state.detached) step_over(operation, id.step);
    return CommandError::none;
}

CommandError CollectiveExecutor::start_receive(Time now, Group& group, StepId id) {
    GroupOperation& operation = operations_[id.slot];
    StepState& state = operation.steps[id.step];
    std::uint32_t member = 0;
    ReceiveCommand command;
    command.exact = true;
    command.capacity_bytes = static_cast<std::uint32_t>(state.memory.bytes);
    if (operation.single) {
        member = member_of(group, state.peer);  // no_member: any
        command.tag = operation.single_tag;
        command.buffer = state.memory.data;
    } else {
        const Schedule::Step& plan = operation.schedule->steps()[id.step];
        member = plan.peer;
        state.peer = peer_of(group, member);
        command.tag = Tag::of_collective(group.number, operation.sequence, plan.message, operation.signature);
        command.part = true;
        command.sink = {&CollectiveExecutor::on_block, this, id.token()};
    }
    command.peer = state.peer;
    const CommandError left = group.departure(endpoint_, member).error;
    ++operation.messages_left;
    const auto received =
        left == CommandError::none ? endpoint_.receive(now, command) : endpoint_.claim(now, command);
    if (!received) {
        --operation.messages_left;
        return left == CommandError::none ? received.error : left;
    }
    state.message = received.value;
    owners_.emplace(key_of(received.value), id);
    return CommandError::none;
}

void CollectiveExecutor::step_over(GroupOperation& operation, std::uint32_t step) {
    StepState& state = operation.steps[step];
    if (state.over) return;
    state.over = true;
    --operation.steps_left;
    pool_.give_back(std::move(state.early));
    state.early = {};
}

void CollectiveExecutor::message_over(Time now, StepId id, const Event& event) {
    GroupOperation& operation = operations_[id.slot];
    StepState& state = operation.steps[id.step];
    Group& group = *find_group(operation.group);
    const auto outcome = endpoint_.outcome(event.message);
    const std::uint64_t bytes = outcome ? outcome.value.message_bytes : 0;
    --operation.messages_left;
    const bool sends = event.kind == EventKind::send_finished || event.kind == EventKind::send_failed;
    const bool failed = event.kind == EventKind::send_failed || event.kind == EventKind::receive_failed;
    const bool lossy = !operation.single && operation.may_lose && operation.schedule->steps()[id.step].lossy;
    const bool abandoned = outcome && !failed && outcome.value.abandoned_blocks > 0;
    if (outcome && sends) operation.result.retransmitted_bytes += outcome.value.retransmitted_bytes;
    if (lossy && sends && operation.result.lossy_fastest == Duration{0})
        operation.result.lossy_fastest = now - operation.since;
    if (abandoned && lossy && !operation.ended()) {
        note_abandoned(operation, id.step, outcome.value);
        state.arrived = true;
        if (!sends) fill_absent(now, id.slot, id.step, outcome.value);
    }
    endpoint_.release(event.message);
    if (abandoned && !lossy && !operation.ended()) {
        // The peer sent it as a message that may lose blocks, which this rank did not agree to.
        CollectiveResult why;
        why.error = CollectiveError::mismatch;
        why.culprit = member_of(group, event.peer);
        why.sequence = operation.sequence;
        why.foreign_bytes = why.expected_bytes = bytes;
        why.foreign_signature = static_cast<std::uint16_t>(operation.signature);
        fail(now, group, id.slot, why);
        return;
    }
    // A peer that has closed in good order does not need what a collective still sends it. A single message to it is
    // not received.
    const bool needless = sends && event.error == CommandError::peer_closed && !operation.single;
    if (failed && !needless && !operation.ended()) {
        message_failed(now, id, event, bytes);
        return;
    }
    if (!failed || needless) {
        if (operation.single) {
            operation.result.peer = member_of(group, event.peer);
            operation.result.bytes = bytes;
            if (!sends) operation.result.received_bytes = bytes;
            state.left_bytes = 0;
        }
        state.arrived = true;
        if (sends || state.left_bytes == 0) step_over(operation, id.step);
    }
    end_if_over(now, id.slot);
}

// A message of an operation that has not ended has failed. `bytes`: its length.
void CollectiveExecutor::message_failed(Time now, StepId id, const Event& event, std::uint64_t bytes) {
    GroupOperation& operation = operations_[id.slot];
    Group& group = *find_group(operation.group);
    if (operation.single && !group.is_open()) return fail_at_once(now, group, id.slot);
    const std::uint32_t member = member_of(group, event.peer);
    const bool left = event.error == CommandError::peer_closed && !operation.single;
    if (event.error == CommandError::peer_cancelled || left) {
        peer_stopped(now, id.slot, member, event.error);
        return;
    }
    if (event.error != CommandError::wrong_size && event.error != CommandError::refused)
        return fail_by_peer(now, group, id.slot, event.error, member);
    CollectiveResult why;
    why.error = CollectiveError::mismatch;
    why.engine_error = event.error;
    why.culprit = member;
    why.sequence = operation.sequence;
    why.expected_bytes = operation.steps[id.step].memory.bytes;
    why.foreign_bytes = event.kind == EventKind::send_failed ? 0 : bytes;
    why.foreign_signature = static_cast<std::uint16_t>(operation.signature);
    fail(now, group, id.slot, why);
}

// The group has failed at `member`, for a reason that it or another rank is about to announce; or `member` has given up
// a single message.
void CollectiveExecutor::peer_stopped(Time now, std::uint32_t slot, std::uint32_t member, CommandError error) {
    GroupOperation& operation = operations_[slot];
    if (operation.accused()) return;  // the reason is known, and this rank is asking others
    operation.state.apply(OperationStates::Event::peer_stopped);
    operation.result.culprit = member;
    operation.result.engine_error = error;
    const Time end = operation.asking() ? operation.asked_at + end_timeout : operation.deadline;
    operation.deadline = std::min(now + reason_timeout, end);
    deadlines_.set(slot, operation.deadline);
}

// Beyond the bound a send is over once its peer has it: whoever sends more than the peer takes waits.
bool CollectiveExecutor::may_copy(PeerId peer, std::uint64_t bytes) const {
    const auto copied = copied_.find(peer.value);
    return bytes <= copied_bytes && (copied == copied_.end() ? 0 : copied->second) + bytes <= max_copied_.value;
}

// Of a group that has failed, copies of what fails are no longer needed. After an abort single messages still are.
void CollectiveExecutor::cancel_copies(Time now, const Group& group) {
    const bool aborted = group.failure.root_error() == CollectiveError::aborted;
    std::vector<MessageId> copies;
    for (const auto& [key, each] : detached_) {
        const Tag tag = Tag::read(each.tag);
        const bool needless = tag.kind == TagKind::collective ? group.fails(tag.sequence) : !aborted;
        if (each.group == group.number && each.fails_group && needless)
            copies.push_back({static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    }
    for (const MessageId copy : copies) endpoint_.cancel(now, copy);
}

void CollectiveExecutor::detached_over(Time now, Detached detached, const Event& event) {
    const auto outcome = endpoint_.outcome(event.message);
    const std::uint64_t bytes = charge(outcome ? outcome.value.message_bytes : 0);
    endpoint_.release(event.message);
    if (const auto copied = copied_.find(event.peer.value); detached.fails_group && copied != copied_.end())
        if ((copied->second -= bytes) == 0) copied_.erase(copied);
    const std::uint32_t slot = detached.writer.slot;
    if (event.kind == EventKind::send_failed && operations_.in_use(slot, detached.writer_generation) &&
        !operations_[slot].ended()) {
        // Bytes of it that are still being computed are not needed any more.
        StepState& state = operations_[slot].steps[detached.writer.step];
        state.copy = nullptr;
        if (!state.over) {
            step_over(operations_[slot], detached.writer.step);
            end_if_over(now, slot);
        }
    }
    pool_.give_back(std::move(detached.memory));
    if (event.kind == EventKind::send_finished || !detached.fails_group) return;
    if (event.error == CommandError::peer_cancelled || event.error == CommandError::cancelled) return;
    const Tag tag = Tag::read(event.tag);
    // A peer that has closed in good order, or whose process has ended, does not need what a collective sends it.
    const bool collective = tag.kind == TagKind::collective;
    const bool left = event.error == CommandError::peer_closed;
    if (left && collective) return;
    if (!collective || event.error != CommandError::peer_gone) lost_[event.peer.value] += bytes;
    Group* group = find_group(detached.group);
    if (left || group == nullptr || group->closing()) return;
    CollectiveResult why;
    why.error = event.error == CommandError::refused  ? CollectiveError::mismatch
                : event.error == CommandError::closed ? CollectiveError::aborted
                                                      : CollectiveError::peer_failed;
    why.engine_error = event.error;
    why.culprit = detached.peer;
    why.sequence = tag.kind == TagKind::collective ? tag.sequence : 0;
    if (tag.kind == TagKind::message && event.error == CommandError::refused)
        return;  // the receiver fails, not the group
    fail_group(now, *group, why, no_slot);
}

void CollectiveExecutor::end_if_over(Time now, std::uint32_t slot) {
    GroupOperation& operation = operations_[slot];
    const bool failed = operation.state == OperationStates::State::failed;
    if (operation.messages_left > 0 || (!failed && operation.steps_left > 0)) return;
    operation.state.apply(failed ? OperationStates::Event::messages_ended : OperationStates::Event::completion);
    Group& group = *find_group(operation.group);
    std::erase(group.operations, slot);
    deadlines_.set(slot, time_never);
    operation.result.waited = now - operation.since;
    for (MemoryPool::Piece& piece : operation.borrowed) pool_.give_back(std::move(piece));
    for (StepState& state : operation.steps) pool_.give_back(std::move(state.early));
    over_.push(id_of(slot));
}

bool CollectiveExecutor::poll_over(CollectiveId& id, CollectiveResult& result) {
    if (over_.empty()) return false;
    id = over_.front();
    over_.pop();
    result = std::move(operations_[id.slot].result);
    operations_[id.slot] = GroupOperation();
    operations_.give_back(id.slot);
    return true;
}

}  // namespace dlcp

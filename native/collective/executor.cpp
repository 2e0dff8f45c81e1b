// Starting collectives, events of their messages, their time, and their end.
#include "collective/executor.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "collective/executor_impl.hpp"

namespace dlcp {
namespace {

using Kind = ScheduleOp::Kind;

// Messages up to this length leave from a copy, so that a collective need not wait for their acknowledgement, nor for
// that of the acknowledgement that got lost. Copying this much costs some 20 us.
constexpr std::uint64_t copied_bytes = 256 * 1024;

// A chunk of scratch starts on a cache line.
constexpr std::uint64_t scratch_alignment = 64;

// They all answer, and nobody is absent as far as they know: who knows better says so within this time.
constexpr Duration word_time = milliseconds(700);
// However it comes: an operation has ended within a second after its time was up.
constexpr Duration longest_word_time = milliseconds(900);
// A peer that gave up its part says why, or has said it to others.
constexpr Duration reason_time = milliseconds(300);

// Peers named in a result at most.
constexpr std::size_t most_waiting = 16;

// A message fits 32 bits, with room for whole granules.
constexpr std::uint64_t most_chunk_bytes = UINT32_MAX - 63;

}  // namespace

const char* name(CollectiveError error) {
    switch (error) {
        case CollectiveError::none: return "none";
        case CollectiveError::timeout: return "timeout";
        case CollectiveError::peer_failed: return "peer_failed";
        case CollectiveError::mismatch: return "mismatch";
        case CollectiveError::group_failed: return "group_failed";
        case CollectiveError::aborted: return "aborted";
    }
    return "unknown";
}

Group* CollectiveExecutor::Impl::find_group(std::uint32_t number) {
    const auto found = groups_.find(number);
    return found == groups_.end() ? nullptr : found->second.get();
}

Group& CollectiveExecutor::Impl::open_group_named(std::uint32_t number) {
    Group* group = find_group(number);
    if (group == nullptr || group->closing)
        throw std::invalid_argument("group " + std::to_string(number) + " is not open");
    return *group;
}

PeerId CollectiveExecutor::Impl::peer_of(Group& group, std::uint32_t member) {
    PeerId& known = group.peers[member];
    if (known == any_peer)
        if (const auto found = endpoint_.find_peer(group.members[member])) known = *found;
    return known;
}

std::uint32_t CollectiveExecutor::Impl::member_of(const Group& group, PeerId peer) const {
    const auto found = std::find(group.members.begin(), group.members.end(), endpoint_.rank_of(peer));
    return found == group.members.end() ? UINT32_MAX : static_cast<std::uint32_t>(found - group.members.begin());
}

bool CollectiveExecutor::Impl::open_group(Time now, std::uint32_t number, std::span<const std::uint32_t> members,
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
    group.told.assign(members.size(), false);
    listen(now, group);
    // What others called in it before this rank opened it.
    std::vector<Event> early;
    std::erase_if(unopened_, [&](const Event& event) {
        if (Tag::read(event.tag).group != number) return false;
        early.push_back(event);
        return true;
    });
    for (const Event& event : early) unexpected(now, event);
    return true;
}

void CollectiveExecutor::Impl::close_group(Time now, std::uint32_t number, bool tell_others) {
    Group* group = find_group(number);
    if (group == nullptr || group->closing) return;
    group->closing = true;
    closing_.push_back(number);
    if (!group->failed) {
        group->failed = true;
        group->failure.error = CollectiveError::aborted;
        group->failure.culprit = group->own;
        if (tell_others) tell(now, *group, UINT32_MAX);
    }
    for (const std::uint32_t slot : std::vector(group->running)) {
        Running& running = running_[slot];
        if (!running.failed) {
            running.failed = true;
            running.result.error = CollectiveError::aborted;
            cancel_messages(now, slot);
            end_if_over(now, slot);
        }
    }
    if (listening_.contains(key_of(group->failure_receive))) endpoint_.cancel(now, group->failure_receive);
    for (const auto& [key, each] : discarded_)
        if (each.group == number) endpoint_.cancel(now, each.message);
    // The number may be another group's one day, and would find it.
    endpoint_.discard_unexpected(now, Tag::of_failure(number), Tag::group_mask);
}

// What a closed group's messages touch is freed when the engine has let go of it. One that has failed stays for members
// that have not been told, until its number is used again.
void CollectiveExecutor::Impl::sweep_closing(std::uint32_t wanted) {
    std::erase_if(closing_, [&](std::uint32_t number) {
        const Group& group = *groups_.at(number);
        if (!group.running.empty() || listening_.contains(key_of(group.failure_receive))) return false;
        if (number != wanted && group.tells && std::count(group.told.begin(), group.told.end(), false) > 1)
            return false;  // this rank itself is never told
        groups_.erase(number);
        return true;
    });
}

std::uint32_t CollectiveExecutor::Impl::begin(Time now, Group& group, Duration timeout) {
    const std::uint32_t slot = running_.take();
    Running& running = running_[slot];
    running = Running();
    running.group = group.number;
    running.since = now;
    running.deadline = timeout < Duration{0} ? time_never : now + timeout;
    group.running.push_back(slot);
    return slot;
}

void CollectiveExecutor::Impl::bind_memory(Running& running, const CollectiveCommand& command) {
    const Schedule& schedule = *command.schedule;
    const auto check = [&](Space space, std::span<const ChunkMemory> given, const char* word) {
        if (given.size() != schedule.chunks(space))
            throw std::invalid_argument(std::string(word) + " has " + std::to_string(given.size()) +
                                        " chunks; accepted: " + std::to_string(schedule.chunks(space)));
        for (const ChunkMemory& chunk : given)
            if (chunk.bytes > most_chunk_bytes)
                throw std::invalid_argument(std::string(word) + " has a chunk of " + std::to_string(chunk.bytes) +
                                            " bytes; accepted: up to " + std::to_string(most_chunk_bytes));
        running.memory[static_cast<std::size_t>(space)].assign(given.begin(), given.end());
    };
    check(Space::input, command.input, "input");
    check(Space::output, command.output, "output");

    auto& scratch = running.memory[static_cast<std::size_t>(Space::scratch)];
    std::uint64_t total = 0;
    bool is_virtual = false;
    for (const Chunk like : schedule.scratch()) {
        const ChunkMemory model = memory_of(running, like);
        is_virtual |= model.data == nullptr && model.bytes > 0;
        scratch.push_back({nullptr, model.bytes});
        total += (model.bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
    }
    if (total == 0 || is_virtual) return;
    running.borrowed.push_back(pool_.take(total + scratch_alignment));
    auto at = reinterpret_cast<std::uintptr_t>(running.borrowed.back().data.get());
    at = (at + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
    for (ChunkMemory& chunk : scratch) {
        chunk.data = reinterpret_cast<std::uint8_t*>(at);
        at += (chunk.bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
    }
}

void CollectiveExecutor::Impl::prepare_steps(Running& running) {
    const auto& plans = running.schedule->steps();
    running.steps.resize(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const Schedule::Step& plan = plans[i];
        StepState& state = running.steps[i];
        const bool sends = plan.kind == Kind::send;
        state.memory = memory_of(running, sends ? plan.operands[0].chunk : plan.target);
        const bool reduces = plan.operands.size() > (plan.kind == Kind::combine ? 1u : 0u) && !sends;
        for (const Schedule::Operand& operand : plan.operands)
            if (memory_of(running, operand.chunk).bytes != state.memory.bytes)
                throw std::invalid_argument("operation " + std::to_string(i) + " combines chunks of " +
                                            std::to_string(state.memory.bytes) + " and " +
                                            std::to_string(memory_of(running, operand.chunk).bytes) + " bytes");
        if (reduces && running.reduce == nullptr)
            throw std::invalid_argument("this reduction is not defined for " + std::string(name(running.type)));
        if (reduces && state.memory.bytes % running.element_bytes != 0)
            throw std::invalid_argument(std::to_string(state.memory.bytes) + " bytes are no whole number of " +
                                        name(running.type));
        if (state.memory.bytes == 0) {
            state.over = true;
            continue;
        }
        state.left_bytes = state.memory.bytes;
        if (!plan.consumers.empty()) state.produced.reset(state.memory.bytes);
        ++running.steps_left;
    }
}

CommandError CollectiveExecutor::Impl::start_send(Time now, Group& group, std::uint32_t slot, std::uint32_t step,
                                                  std::uint8_t traffic_class, const LossRules* loss) {
    Running& running = running_[slot];
    StepState& state = running.steps[step];
    SendCommand command;
    std::uint32_t member = 0;
    if (running.single) {
        member = member_of(group, state.peer);
        command.tag = running.single_tag;
    } else {
        const Schedule::Step& plan = running.schedule->steps()[step];
        member = plan.peer;
        state.peer = peer_of(group, member);
        command.tag = Tag::of_collective(group.number, running.sequence, plan.message, running.signature);
        command.gated = plan.operands[0].producer != Schedule::none;
        if (plan.lossy && loss != nullptr) allow_loss(command, *loss, member);
    }
    command.peer = state.peer;
    command.payload = state.memory.data;
    command.message_bytes = static_cast<std::uint32_t>(state.memory.bytes);
    command.traffic_class = traffic_class;
    // Of what may be given up, the collective must hear what was.
    state.detached = state.memory.bytes <= copied_bytes && command.delivery == Delivery::reliable;
    Detached detached{{}, group.number, member, true, {slot, step}, running_.generation(slot)};
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
    running.result.sent_bytes += state.memory.bytes;
    if (state.detached) {
        detached_.emplace(key_of(sent.value), std::move(detached));
    } else {
        owners_.emplace(key_of(sent.value), Owner{slot, step});
        ++running.messages_left;
    }
    if (command.gated) return CommandError::none;
    state.left_bytes = 0;
    if (state.detached) step_over(running, step);
    return CommandError::none;
}

CommandError CollectiveExecutor::Impl::start_receive(Time now, Group& group, std::uint32_t slot,
                                                     std::uint32_t step) {
    Running& running = running_[slot];
    StepState& state = running.steps[step];
    ReceiveCommand command;
    command.exact = true;
    command.capacity_bytes = static_cast<std::uint32_t>(state.memory.bytes);
    if (running.single) {
        command.tag = running.single_tag;
        command.buffer = state.memory.data;
    } else {
        const Schedule::Step& plan = running.schedule->steps()[step];
        state.peer = peer_of(group, plan.peer);
        command.tag = Tag::of_collective(group.number, running.sequence, plan.message, running.signature);
        command.sink = {&Impl::on_block, this, std::uint64_t{slot} << 32 | step};
    }
    command.peer = state.peer;
    ++running.messages_left;
    const auto received = endpoint_.receive(now, command);
    if (!received) {
        --running.messages_left;
        return received.error;
    }
    state.message = received.value;
    owners_.emplace(key_of(received.value), Owner{slot, step});
    return CommandError::none;
}

CollectiveId CollectiveExecutor::Impl::start(Time now, const CollectiveCommand& command) {
    Group* group = &open_group_named(command.group);
    if (command.schedule == nullptr || command.schedule->world_size() != group->members.size() ||
        command.schedule->rank() != group->own)
        throw std::invalid_argument("the schedule is for another rank or world size than the group");
    if (!group->failed)
        for (const std::uint32_t peer : command.schedule->peers())
            if (peer_of(*group, peer) == any_peer)
                throw std::invalid_argument("rank " + std::to_string(peer) + " of the group is not connected");

    const std::uint32_t slot = begin(now, *group, command.timeout);
    Running& running = running_[slot];
    running.schedule = command.schedule;
    running.sequence = command.sequence;
    running.signature = command.signature;
    running.type = command.type;
    running.reduce = find_reduce(command.type, command.op);
    running.average = find_average(command.type);
    running.multiply = find_multiply(command.type);
    running.average_over = command.average_over;
    running.may_lose = command.loss != nullptr;
    running.rescale = command.loss != nullptr && command.loss->rescale;
    running.element_bytes = static_cast<std::uint32_t>(element_bytes(command.type));
    try {
        bind_memory(running, command);
        prepare_steps(running);
        if (command.loss != nullptr) check_loss(*group, running, command);
    } catch (...) {
        std::erase(group->running, slot);
        for (MemoryPool::Piece& piece : running.borrowed) pool_.give_back(std::move(piece));
        running_.give_back(slot);
        throw;
    }
    const CollectiveId id = id_of(slot);
    running.result.sequence = command.sequence;
    Group::Past& past = group->past[command.sequence % group->past.size()];
    past = {command.sequence & Tag::sequence_mask, command.signature, command.schedule};
    if (group->failed) {
        fail_at_once(now, *group, slot);
        return id;
    }
    // What others called under this number before us.
    const std::uint32_t sequence = command.sequence & Tag::sequence_mask;
    for (const Group::Early& early : std::vector(group->early)) {
        if (early.tag.sequence != sequence) continue;
        if (judge(now, *group, early, past, slot)) return id;
    }
    std::erase_if(group->early, [&](const Group::Early& early) { return early.tag.sequence == sequence; });

    // Sends before receives: a receive may find its message here, and release blocks of a send.
    const auto& plans = command.schedule->steps();
    CommandError error = CommandError::none;
    std::uint32_t culprit = UINT32_MAX;
    for (const Kind kind : {Kind::send, Kind::receive}) {
        for (std::uint32_t i = 0; i < plans.size() && error == CommandError::none; ++i) {
            if (plans[i].kind != kind || running.steps[i].over) continue;
            error = kind == Kind::send ? start_send(now, *group, slot, i, command.traffic_class, command.loss)
                                       : start_receive(now, *group, slot, i);
            if (error != CommandError::none) culprit = plans[i].peer;
        }
    }
    if (error != CommandError::none) {
        CollectiveResult why;
        why.error = CollectiveError::peer_failed;
        why.engine_error = error;
        why.culprit = culprit;
        fail_group(now, *group, why, slot);
        return id;
    }
    for (std::uint32_t i = 0; i < plans.size(); ++i) {
        if (plans[i].kind != Kind::combine || running.steps[i].over) continue;
        const bool local = std::all_of(plans[i].operands.begin(), plans[i].operands.end(),
                                       [](const auto& operand) { return operand.producer == Schedule::none; });
        if (local) combine(now, slot, i, 0, static_cast<std::uint32_t>(running.steps[i].memory.bytes));
    }
    if (running.deadline != time_never) deadlines_.set(slot, running.deadline);
    end_if_over(now, slot);
    return id;
}

CollectiveId CollectiveExecutor::Impl::start(Time now, const MessageCommand& command) {
    Group* group = &open_group_named(command.group);
    if (command.memory.bytes > most_chunk_bytes)
        throw std::invalid_argument("the message has " + std::to_string(command.memory.bytes) +
                                    " bytes; accepted: up to " + std::to_string(most_chunk_bytes));
    const bool from_anyone = !command.sending && command.peer == UINT32_MAX;
    if (!from_anyone && (command.peer >= group->members.size() || command.peer == group->own))
        throw std::invalid_argument("rank " + std::to_string(command.peer) +
                                    " is not another rank of a group of " + std::to_string(group->members.size()));
    if (!from_anyone && !group->failed && peer_of(*group, command.peer) == any_peer)
        throw std::invalid_argument("rank " + std::to_string(command.peer) + " of the group is not connected");

    const std::uint32_t slot = begin(now, *group, command.timeout);
    Running& running = running_[slot];
    running.single = true;
    running.single_sends = command.sending;
    running.single_tag = Tag::of_message(command.group, command.tag);
    running.steps.resize(1);
    StepState& state = running.steps[0];
    state.memory = command.memory;
    state.left_bytes = command.memory.bytes;
    if (!from_anyone) state.peer = group->peers[command.peer];
    running.steps_left = 1;
    const CollectiveId id = id_of(slot);
    if (group->failed) {
        fail_at_once(now, *group, slot);
        return id;
    }
    const CommandError error = command.sending ? start_send(now, *group, slot, 0, command.traffic_class)
                                               : start_receive(now, *group, slot, 0);
    if (error != CommandError::none) {
        CollectiveResult why;
        why.error = CollectiveError::peer_failed;
        why.engine_error = error;
        why.culprit = command.peer;
        fail_single(now, slot, why);
        return id;
    }
    if (running.deadline != time_never) deadlines_.set(slot, running.deadline);
    end_if_over(now, slot);
    return id;
}

void CollectiveExecutor::Impl::step_over(Running& running, std::uint32_t step) {
    StepState& state = running.steps[step];
    if (state.over) return;
    state.over = true;
    --running.steps_left;
    pool_.give_back(std::move(state.early));
    state.early = {};
}

bool CollectiveExecutor::Impl::handle_event(Time now, const Event& event) {
    switch (event.kind) {
        case EventKind::peer_established: peer_established(now, event.peer); return false;
        case EventKind::message_unexpected: unexpected(now, event); return true;
        case EventKind::send_finished:
        case EventKind::send_failed:
        case EventKind::receive_finished:
        case EventKind::receive_failed: break;
        case EventKind::peer_down:
        case EventKind::path_down:
        case EventKind::path_up:
        case EventKind::bound_reached: return false;
    }
    const std::uint64_t key = key_of(event.message);
    if (const auto owner = owners_.find(key); owner != owners_.end()) {
        const Owner found = owner->second;
        owners_.erase(owner);
        message_over(now, found, event);
        return true;
    }
    if (const auto detached = detached_.find(key); detached != detached_.end()) {
        Detached found = std::move(detached->second);
        detached_.erase(detached);
        detached_over(now, std::move(found), event);
        return true;
    }
    if (const auto listening = listening_.find(key); listening != listening_.end()) {
        const std::uint32_t number = listening->second;
        listening_.erase(listening);
        const auto outcome = endpoint_.outcome(event.message);
        endpoint_.release(event.message);
        Group* group = find_group(number);
        if (group != nullptr && event.kind == EventKind::receive_finished && outcome)
            told(now, *group, event.peer, outcome.value.message_bytes);
        return true;
    }
    if (discarded_.erase(key) > 0) {
        endpoint_.release(event.message);
        return true;
    }
    return false;
}

void CollectiveExecutor::Impl::message_over(Time now, Owner owner, const Event& event) {
    Running& running = running_[owner.slot];
    StepState& state = running.steps[owner.step];
    Group& group = *find_group(running.group);
    const auto outcome = endpoint_.outcome(event.message);
    const std::uint64_t bytes = outcome ? outcome.value.message_bytes : 0;
    --running.messages_left;
    const std::uint32_t member = member_of(group, event.peer);
    const bool sends = event.kind == EventKind::send_finished || event.kind == EventKind::send_failed;
    const bool failed = event.kind == EventKind::send_failed || event.kind == EventKind::receive_failed;
    const bool lossy = !running.single && running.may_lose && running.schedule->steps()[owner.step].lossy;
    const bool abandoned = outcome && !failed && outcome.value.abandoned_blocks > 0;
    if (outcome && sends) running.result.retransmitted_bytes += outcome.value.retransmitted_bytes;
    if (lossy && sends && running.result.lossy_fastest == Duration{0})
        running.result.lossy_fastest = now - running.since;
    if (abandoned && lossy && !running.failed) {
        note_abandoned(running, owner.step, outcome.value);
        state.arrived = true;
        if (!sends) fill_absent(now, owner.slot, owner.step, outcome.value);
    }
    endpoint_.release(event.message);
    if (abandoned && !lossy && !running.failed) {
        // The peer said that this message may lose blocks, which nobody here agreed to.
        CollectiveResult why;
        why.error = CollectiveError::mismatch;
        why.culprit = member;
        why.sequence = running.sequence;
        why.foreign_bytes = why.expected_bytes = bytes;
        why.foreign_signature = static_cast<std::uint16_t>(running.signature);
        if (running.single)
            fail_single(now, owner.slot, why);
        else
            fail_group(now, group, why, owner.slot);
        return;
    }
    // A peer that closed in good order has no use for what a collective still sends it; a single message is not received.
    if (!failed || (sends && event.error == CommandError::peer_closed && !running.single)) {
        if (running.single) {
            running.result.peer = member;
            running.result.bytes = bytes;
            if (!sends) running.result.received_bytes = bytes;
            state.left_bytes = 0;
        }
        state.arrived = true;
        if (sends || state.left_bytes == 0) step_over(running, owner.step);
    } else if (!running.failed) {
        CollectiveResult why;
        why.error = CollectiveError::peer_failed;
        why.engine_error = event.error;
        why.culprit = member;
        why.sequence = running.sequence;
        if (event.error == CommandError::closed) why.error = CollectiveError::aborted;
        if (event.error == CommandError::wrong_size || event.error == CommandError::refused) {
            why.error = CollectiveError::mismatch;
            why.expected_bytes = state.memory.bytes;
            why.foreign_bytes = sends ? 0 : bytes;
            why.foreign_signature = static_cast<std::uint16_t>(running.signature);
        }
        const bool left = event.error == CommandError::peer_closed && !running.single;
        if (event.error == CommandError::peer_cancelled || left) {
            if (running.accused) return;  // it has been told why, and is at it
            // Its group has failed, for a reason that it or another is about to tell; or it gave up this one message.
            running.doomed = true;
            running.result.culprit = member;
            running.result.engine_error = event.error;
            const Time reason = now + reason_time;
            running.deadline = running.asked ? std::min(reason, running.asked_at + longest_word_time)
                                             : std::min(reason, running.deadline);
            deadlines_.set(owner.slot, running.deadline);
        } else if (running.single && event.error != CommandError::peer_timeout &&
                   event.error != CommandError::peer_gone) {
            fail_single(now, owner.slot, why);
        } else {
            fail_group(now, group, why, owner.slot);
        }
        return;
    }
    end_if_over(now, owner.slot);
}

void CollectiveExecutor::Impl::detached_over(Time now, Detached detached, const Event& event) {
    endpoint_.release(event.message);
    const std::uint32_t slot = detached.writer.slot;
    if (event.kind == EventKind::send_failed && running_.in_use(slot, detached.writer_generation) &&
        !running_[slot].failed) {
        // If its bytes are still being computed, they have nowhere to go any more.
        StepState& state = running_[slot].steps[detached.writer.step];
        state.copy = nullptr;
        if (!state.over) {
            step_over(running_[slot], detached.writer.step);
            end_if_over(now, slot);
        }
    }
    pool_.give_back(std::move(detached.memory));
    if (event.kind == EventKind::send_finished || !detached.concerns_group) return;
    Group* group = find_group(detached.group);
    if (group == nullptr || group->failed) return;
    // A peer that has left, or gave its part up, has no use for it; why it did, others say.
    if (event.error == CommandError::peer_closed || event.error == CommandError::peer_cancelled ||
        event.error == CommandError::cancelled)
        return;
    CollectiveResult why;
    why.error = event.error == CommandError::refused  ? CollectiveError::mismatch
                : event.error == CommandError::closed ? CollectiveError::aborted
                                                      : CollectiveError::peer_failed;
    why.engine_error = event.error;
    why.culprit = detached.peer;
    const Tag tag = Tag::read(event.tag);
    why.sequence = tag.kind == TagKind::collective ? tag.sequence : 0;
    if (tag.kind == TagKind::message && event.error == CommandError::refused) return;  // the receiver was told
    fail_group(now, *group, why, UINT32_MAX);
}

void CollectiveExecutor::Impl::end_if_over(Time now, std::uint32_t slot) {
    Running& running = running_[slot];
    if (running.failed ? running.messages_left > 0 : running.steps_left > 0 || running.messages_left > 0) return;
    Group& group = *find_group(running.group);
    std::erase(group.running, slot);
    deadlines_.set(slot, time_never);
    running.result.waited = now - running.since;
    for (MemoryPool::Piece& piece : running.borrowed) pool_.give_back(std::move(piece));
    for (StepState& state : running.steps) pool_.give_back(std::move(state.early));
    over_.push(id_of(slot));
}

bool CollectiveExecutor::Impl::poll_over(CollectiveId& id, CollectiveResult& result) {
    if (over_.empty()) return false;
    id = over_.front();
    over_.pop();
    result = std::move(running_[id.slot].result);
    running_[id.slot] = Running();
    running_.give_back(id.slot);
    return true;
}

// Blocks for this peer are cut for good now: those that are complete may leave. And what it could not be told before, it
// is told now.
void CollectiveExecutor::Impl::peer_established(Time now, PeerId peer) {
    for (auto& [number, group] : groups_) {
        if (group->tells)
            if (const std::uint32_t member = member_of(*group, peer); member != UINT32_MAX)
                tell_member(now, *group, member);
        for (const std::uint32_t slot : std::vector(group->running)) {
            Running& running = running_[slot];
            if (running.single || running.failed) continue;
            for (std::uint32_t step = 0; step < running.steps.size(); ++step) {
                StepState& state = running.steps[step];
                const Schedule::Step& plan = running.schedule->steps()[step];
                if (plan.kind != Kind::send || state.open || state.over || !(state.peer == peer)) continue;
                state.open = true;
                if (plan.operands[0].producer == Schedule::none) continue;
                const Granules& ready = running.steps[plan.operands[0].producer].produced;
                const auto end = static_cast<std::uint32_t>(state.memory.bytes);
                std::uint32_t first = 0, last = 0;
                for (std::uint32_t at = 0; at < end && ready.next_run(at, end, true, first, last); at = last)
                    release(now, running, step, first, last);
            }
            end_if_over(now, slot);
        }
    }
}

void CollectiveExecutor::Impl::handle_timer(Time now) {
    while (deadlines_.next() <= now) {
        const std::uint32_t slot = deadlines_.top();
        deadlines_.set(slot, time_never);
        time_is_up(now, slot);
    }
}

void CollectiveExecutor::Impl::stop_waiting(Time now) {
    for (auto& [number, group] : groups_) {
        for (const std::uint32_t slot : std::vector(group->running)) {
            const Running& running = running_[slot];
            if (running.failed) continue;
            if (running.doomed)
                time_is_up(now, slot);
            else if (running.accused)
                fail_group(now, *group, group->accusation, UINT32_MAX);
        }
    }
}

// Time is up in two steps: whoever is waited for is asked first, so that the one to blame can be told from those who
// wait themselves.
void CollectiveExecutor::Impl::time_is_up(Time now, std::uint32_t slot) {
    Running& running = running_[slot];
    if (running.failed) return;
    Group& group = *find_group(running.group);
    CollectiveResult why;
    why.error = CollectiveError::timeout;
    why.sequence = running.sequence;
    if (running.doomed) {
        why.culprit = running.result.culprit;
        if (running.single) {
            why.error = CollectiveError::peer_failed;
            why.engine_error = CommandError::peer_cancelled;
            fail_single(now, slot, why);
            return;
        }
        if (running.result.engine_error == CommandError::peer_closed) {
            why.error = CollectiveError::peer_failed;
            why.engine_error = CommandError::peer_closed;
            fail_group(now, group, why, slot);
            return;
        }
        why.error = CollectiveError::group_failed;
        why.cause = CollectiveError::aborted;
        why.reporter = why.culprit;
        fail_group(now, group, why, slot);
        return;
    }
    note_waiting(running, group);
    if (now < running.deadline) {  // another rank's time is up
        if (const std::uint32_t who = silent(group, running); who != UINT32_MAX)
            is_absent(now, group, slot, who, true);
        deadlines_.set(slot, running.deadline);
        return;
    }
    why.waiting_for = running.result.waiting_for;
    const auto& waiting = why.waiting_for;
    if (!running.absent_is_silent && !waiting.empty()) {
        if (!running.asked) {
            // Others may have made it ask already.
            if (!is_asking(now, running)) ask(now, group, running);
            running.asked = true;
            deadlines_.set(slot, running.asked_at + answer_time);
            return;
        }
        if (const std::uint32_t who = silent(group, running); who != UINT32_MAX) {
            if (!running.single) {
                is_absent(now, group, slot, who, true);
                return;
            }
            running.absent = who;
            running.absent_is_silent = true;
        } else if (now - running.asked_at < word_time && !running.single) {
            deadlines_.set(slot, running.asked_at + word_time);
            return;
        }
    }
    why.culprit = running.absent;
    if (running.absent_is_silent) why.engine_error = CommandError::peer_timeout;
    if (why.culprit == UINT32_MAX && running.accused) {
        fail_group(now, group, group.accusation, UINT32_MAX);
        return;
    }
    if (why.culprit == UINT32_MAX && !waiting.empty()) why.culprit = waiting.front().peer;
    if (running.single)
        fail_single(now, slot, why);
    else
        fail_group(now, group, why, slot);
}

// Is it the peer that a send waits for? Not if its bytes are still being computed, nor once a copy of them has left.
bool CollectiveExecutor::Impl::waits_for_peer(const Running& running, std::size_t step) const {
    const StepState& state = running.steps[step];
    if (state.left_bytes == 0) return !state.detached;
    if (running.single || state.open) return false;
    const std::uint32_t producer = running.schedule->steps()[step].operands[0].producer;
    return producer != Schedule::none && running.steps[producer].left_bytes == 0;  // for its session
}

// Whom a collective waits for: those whose part is missing, then those that have not taken all of ours.
void CollectiveExecutor::Impl::note_waiting(Running& running, const Group& group) const {
    auto& waiting = running.result.waiting_for;
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
        for (std::size_t i = 0; i < running.steps.size(); ++i) {
            const StepState& state = running.steps[i];
            const bool sends =
                running.single ? running.single_sends : running.schedule->steps()[i].kind == Kind::send;
            const bool receives =
                running.single ? !running.single_sends : running.schedule->steps()[i].kind == Kind::receive;
            if (state.over || state.arrived || !(kind == Kind::send ? sends : receives)) continue;
            if (sends && !waits_for_peer(running, i)) continue;
            const std::uint32_t peer =
                running.single ? member_of(group, state.peer) : running.schedule->steps()[i].peer;
            if (peer != UINT32_MAX) note(peer, receives, sends ? state.memory.bytes : state.left_bytes);
        }
    }
}

CollectiveExecutor::CollectiveExecutor(Endpoint& endpoint) : impl_(std::make_unique<Impl>(endpoint)) {}
CollectiveExecutor::~CollectiveExecutor() = default;

bool CollectiveExecutor::open_group(Time now, std::uint32_t group, std::span<const std::uint32_t> members,
                                    std::uint32_t own) {
    return impl_->open_group(now, group, members, own);
}
void CollectiveExecutor::close_group(Time now, std::uint32_t group, bool tell) {
    impl_->close_group(now, group, tell);
}
CollectiveId CollectiveExecutor::start(Time now, const CollectiveCommand& command) {
    return impl_->start(now, command);
}
CollectiveId CollectiveExecutor::start(Time now, const MessageCommand& command) {
    return impl_->start(now, command);
}
bool CollectiveExecutor::handle_event(Time now, const Event& event) { return impl_->handle_event(now, event); }
void CollectiveExecutor::handle_timer(Time now) { impl_->handle_timer(now); }
Time CollectiveExecutor::next_deadline() const { return impl_->next_deadline(); }
void CollectiveExecutor::stop_waiting(Time now) { impl_->stop_waiting(now); }
bool CollectiveExecutor::draining() const { return impl_->draining(); }
bool CollectiveExecutor::poll_over(CollectiveId& id, CollectiveResult& result) {
    return impl_->poll_over(id, result);
}

}  // namespace dlcp

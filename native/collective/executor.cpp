// Starting operations, and what comes from outside: events, timers.
#include "collective/executor.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dlcp {
namespace {

using Kind = ScheduleOp::Kind;

// A chunk of scratch starts on a cache line.
constexpr std::uint64_t scratch_alignment = 64;

}  // namespace

std::uint32_t CollectiveExecutor::begin(Time now, Group& group, Duration timeout) {
    const std::uint32_t slot = operations_.take();
    GroupOperation& operation = operations_[slot];
    operation = GroupOperation();
    operation.group = group.number;
    operation.since = now;
    operation.deadline = timeout < Duration{0} ? time_never : now + timeout;
    group.operations.push_back(slot);
    return slot;
}

void CollectiveExecutor::bind_memory(GroupOperation& operation, const CollectiveCommand& command) {
    const Schedule& schedule = *command.schedule;
    const auto check = [&](Space space, std::span<const ChunkMemory> given, const char* argument) {
        if (given.size() != schedule.chunks(space))
            throw std::invalid_argument(std::string(argument) + " has " + std::to_string(given.size()) +
                                        " chunks; accepted: " + std::to_string(schedule.chunks(space)));
        for (const ChunkMemory& chunk : given)
            if (chunk.bytes > most_chunk_bytes)
                throw std::invalid_argument(std::string(argument) + " has a chunk of " +
                                            std::to_string(chunk.bytes) + " bytes; accepted: up to " +
                                            std::to_string(most_chunk_bytes));
        operation.memory[static_cast<std::size_t>(space)].assign(given.begin(), given.end());
    };
    check(Space::input, command.input, "input");
    check(Space::output, command.output, "output");

    auto& scratch = operation.memory[static_cast<std::size_t>(Space::scratch)];
    std::uint64_t total = 0;
    bool is_virtual = false;
    for (const Chunk like : schedule.scratch()) {
        const ChunkMemory model = memory_of(operation, like);
        is_virtual |= model.data == nullptr && model.bytes > 0;
        scratch.push_back({nullptr, model.bytes});
        total += (model.bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
    }
    if (total == 0 || is_virtual) return;
    operation.borrowed.push_back(pool_.take(total + scratch_alignment));
    auto at = reinterpret_cast<std::uintptr_t>(operation.borrowed.back().data.get());
    at = (at + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
    for (ChunkMemory& chunk : scratch) {
        chunk.data = reinterpret_cast<std::uint8_t*>(at);
        at += (chunk.bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
    }
}

void CollectiveExecutor::prepare_steps(GroupOperation& operation) {
    const auto& plans = operation.schedule->steps();
    operation.steps.resize(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const Schedule::Step& plan = plans[i];
        StepState& state = operation.steps[i];
        const bool sends = plan.kind == Kind::send;
        state.memory = memory_of(operation, sends ? plan.operands[0].chunk : plan.target);
        const bool reduces = plan.operands.size() > (plan.kind == Kind::combine ? 1u : 0u) && !sends;
        for (const Schedule::Operand& operand : plan.operands)
            if (memory_of(operation, operand.chunk).bytes != state.memory.bytes)
                throw std::invalid_argument("operation " + std::to_string(i) + " combines chunks of " +
                                            std::to_string(state.memory.bytes) + " and " +
                                            std::to_string(memory_of(operation, operand.chunk).bytes) + " bytes");
        if (reduces && operation.reduce == nullptr)
            throw std::invalid_argument("this reduction is not defined for " + std::string(name(operation.type)));
        if (reduces && state.memory.bytes % operation.element_bytes != 0)
            throw std::invalid_argument(std::to_string(state.memory.bytes) + " bytes are no whole number of " +
                                        name(operation.type));
        if (state.memory.bytes == 0) {
            state.over = true;
            continue;
        }
        state.left_bytes = state.memory.bytes;
        if (!plan.consumers.empty()) state.produced.reset(state.memory.bytes, operation.granule_bytes());
        ++operation.steps_left;
    }
}

void CollectiveExecutor::check(Group& group, const CollectiveCommand& command) {
    if (command.schedule == nullptr || command.schedule->world_size() != group.members.size() ||
        command.schedule->rank() != group.own)
        throw std::invalid_argument("the schedule is for another rank or world size than the group");
    if (group.fails(command.sequence)) return;
    for (const std::uint32_t peer : command.schedule->peers())
        if (peer_of(group, peer) == any_peer)
            throw std::invalid_argument("rank " + std::to_string(peer) + " of the group is not connected");
}

// An operation with all of its memory and steps, and no message yet.
std::uint32_t CollectiveExecutor::prepare(Time now, Group& group, const CollectiveCommand& command) {
    const std::uint32_t slot = begin(now, group, command.timeout);
    GroupOperation& operation = operations_[slot];
    operation.schedule = command.schedule;
    operation.sequence = operation.result.sequence = command.sequence;
    operation.signature = command.signature;
    operation.type = command.type;
    operation.reduce = find_reduce(command.type, command.op);
    operation.average = find_average(command.type);
    operation.multiply = find_multiply(command.type);
    operation.average_over = command.average_over;
    operation.copies_short = command.copies_short;
    operation.may_lose = command.loss != nullptr;
    operation.rescale = command.loss != nullptr && command.loss->rescale;
    operation.element_bytes = static_cast<std::uint32_t>(element_bytes(command.type));
    if (command.coded != nullptr) {
        operation.coded = *command.coded;
        operation.element_bytes = operation.unit_bytes();
    }
    if (command.update != nullptr) operation.update = *command.update;
    try {
        bind_memory(operation, command);
        prepare_steps(operation);
        if (command.coded != nullptr) check_coded(operation, command);
        if (command.update != nullptr) {
            check_update(operation, command);
            operation.optimizer_step.emplace(command.update->rule, command.update->step);
        }
        if (command.loss != nullptr) check_loss(group, operation, command);
    } catch (...) {
        std::erase(group.operations, slot);
        for (MemoryPool::Piece& piece : operation.borrowed) pool_.give_back(std::move(piece));
        operations_.give_back(slot);
        throw;
    }
    return slot;
}

CollectiveId CollectiveExecutor::start(Time now, const CollectiveCommand& command) {
    Group& group = open_group_named(command.group);
    check(group, command);
    const std::uint32_t slot = prepare(now, group, command);
    const CollectiveId id = id_of(slot);
    const std::uint32_t sequence = command.sequence & Tag::sequence_mask;
    Group::Past& past = group.past[command.sequence % group.past.size()];
    past = {sequence, command.signature, command.schedule};
    group.started_end = std::max(group.started_end, command.sequence + 1);
    if (group.fails(command.sequence)) {
        fail_at_once(now, group, slot);
        return id;
    }
    // Messages that others sent under this number before this rank called it.
    for (const Group::Early& early : std::vector(group.early))
        if (early.tag.sequence == sequence && check_signature(now, group, early, past, slot)) return id;
    std::erase_if(group.early, [&](const Group::Early& early) { return early.tag.sequence == sequence; });

    if (!start_messages(now, group, slot, command)) return id;
    combine_local(now, slot);
    if (const Time deadline = operations_[slot].deadline; deadline != time_never) deadlines_.set(slot, deadline);
    end_if_over(now, slot);
    return id;
}

// False: one of them cannot start, and the group has failed.
bool CollectiveExecutor::start_messages(Time now, Group& group, std::uint32_t slot,
                                        const CollectiveCommand& command) {
    const auto& plans = command.schedule->steps();
    // Sends before receives: a receive may find its message here, and release blocks of a send.
    for (const Kind kind : {Kind::send, Kind::receive}) {
        for (std::uint32_t i = 0; i < plans.size(); ++i) {
            if (plans[i].kind != kind || operations_[slot].steps[i].over) continue;
            const CommandError error = kind == Kind::send
                                           ? start_send(now, group, {slot, i}, command.traffic_class, command.loss)
                                           : start_receive(now, group, {slot, i});
            if (error == CommandError::none) continue;
            fail_by_peer(now, group, slot, error, plans[i].peer);
            return false;
        }
    }
    return true;
}

// Combinations of chunks that are all there at the start.
void CollectiveExecutor::combine_local(Time now, std::uint32_t slot) {
    const GroupOperation& operation = operations_[slot];
    const auto& plans = operation.schedule->steps();
    for (std::uint32_t i = 0; i < plans.size(); ++i) {
        if (plans[i].kind != Kind::combine || operation.steps[i].over) continue;
        const bool local = std::all_of(plans[i].operands.begin(), plans[i].operands.end(),
                                       [](const auto& operand) { return operand.producer == Schedule::none; });
        if (local) combine(now, slot, i, 0, static_cast<std::uint32_t>(operation.steps[i].memory.bytes));
    }
}

void CollectiveExecutor::check(Group& group, const MessageCommand& command) {
    if (command.memory.bytes > most_chunk_bytes)
        throw std::invalid_argument("the message has " + std::to_string(command.memory.bytes) +
                                    " bytes; accepted: up to " + std::to_string(most_chunk_bytes));
    if (!command.sending && command.peer == no_member) return;
    if (command.peer >= group.members.size() || command.peer == group.own)
        throw std::invalid_argument("rank " + std::to_string(command.peer) +
                                    " is not another rank of a group of " + std::to_string(group.members.size()));
    if (group.is_open() && peer_of(group, command.peer) == any_peer)
        throw std::invalid_argument("rank " + std::to_string(command.peer) + " of the group is not connected");
}

CollectiveId CollectiveExecutor::start(Time now, const MessageCommand& command) {
    Group& group = open_group_named(command.group);
    check(group, command);
    const std::uint32_t slot = begin(now, group, command.timeout);
    const CollectiveId id = id_of(slot);
    GroupOperation& operation = operations_[slot];
    operation.single = true;
    operation.single_sends = command.sending;
    operation.single_tag = Tag::of_message(command.group, command.tag);
    operation.steps.resize(1);
    StepState& state = operation.steps[0];
    state.memory = command.memory;
    state.left_bytes = command.memory.bytes;
    if (command.peer != no_member) state.peer = group.peers[command.peer];
    operation.steps_left = 1;
    if (!group.is_open()) {
        fail_at_once(now, group, slot);
        return id;
    }
    const CommandError error = command.sending ? start_send(now, group, {slot, 0}, command.traffic_class)
                                               : start_receive(now, group, {slot, 0});
    if (error != CommandError::none) {
        const std::uint32_t culprit =
            command.peer == no_member ? group.departure(endpoint_, no_member).member : command.peer;
        fail_by_peer(now, group, slot, error, culprit);
        return id;
    }
    if (operation.deadline != time_never) deadlines_.set(slot, operation.deadline);
    end_if_over(now, slot);
    return id;
}

bool CollectiveExecutor::handle_event(Time now, const Event& event) {
    switch (event.kind) {
        case EventKind::peer_established: peer_established(now, event.peer); return false;
        case EventKind::message_unexpected: handle_unexpected(now, event); return true;
        case EventKind::send_finished:
        case EventKind::send_failed:
        case EventKind::receive_finished:
        case EventKind::receive_failed: break;
        case EventKind::peer_down: peer_left(now, event.peer); return false;
        case EventKind::path_down:
        case EventKind::path_up:
        case EventKind::bound_reached: return false;
    }
    const std::uint64_t key = key_of(event.message);
    if (const auto owner = owners_.find(key); owner != owners_.end()) {
        const StepId found = owner->second;
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
            handle_notice(now, *group, event.peer, outcome.value.message_bytes);
        return true;
    }
    if (discarded_.erase(key) > 0) {
        endpoint_.release(event.message);
        return true;
    }
    return false;
}

void CollectiveExecutor::handle_timer(Time now) {
    while (deadlines_.next() <= now) {
        const std::uint32_t slot = deadlines_.top();
        deadlines_.set(slot, time_never);
        handle_deadline(now, slot);
    }
}

}  // namespace dlcp

// What a collective may abandon, what it abandoned, and how an owner replaces a missing contribution.
//
// Invariant: a block is either added by its owner or named in CollectiveResult::abandoned at both ends; never both.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "collective/executor.hpp"

namespace dlcp {
namespace {

// Calls `run(offset, bytes)` for each run of abandoned blocks.
template <class Run>
void each_run(const MessageOutcome& outcome, Run run) {
    const auto lost = [&](std::uint32_t block) { return (outcome.abandoned[block / 64] >> block % 64 & 1) != 0; };
    for (std::uint32_t block = 0; block < outcome.blocks; ++block) {
        if (!lost(block)) continue;
        const std::uint32_t first = block;
        while (block + 1 < outcome.blocks && lost(block + 1)) ++block;
        const std::uint32_t begin = first * std::uint32_t{outcome.block_bytes};
        const std::uint64_t end = std::uint64_t{block + 1} * outcome.block_bytes;
        run(begin, static_cast<std::uint32_t>(std::min<std::uint64_t>(end, outcome.message_bytes)) - begin);
    }
}

}  // namespace

// Throws std::invalid_argument that names the mismatch.
void CollectiveExecutor::check_loss(Group& group, const GroupOperation& operation,
                                    const CollectiveCommand& command) {
    const LossRules& loss = *command.loss;
    if (!(loss.loss_ratio >= 0.0 && loss.loss_ratio < 1.0))
        throw std::invalid_argument("loss_ratio is " + std::to_string(loss.loss_ratio) +
                                    "; accepted: 0 up to 1, 1 excluded");
    if (loss.deadline < Duration{0})
        throw std::invalid_argument("deadline is negative; accepted: 0 (none) or more");
    if (command.op != ReduceOp::sum)
        throw std::invalid_argument(std::string("loss of a ") + name(command.op) + "; accepted: of a sum");
    if (loss.rescale && command.coded != nullptr)
        throw std::invalid_argument("rescale of coded values; accepted: of elements");
    if (loss.rescale && !is_floating(command.type))
        throw std::invalid_argument(std::string("rescale of ") + name(command.type) +
                                    "; accepted: floating point types");
    if (loss.importance.empty()) return;
    if (loss.importance.size() != group.members.size())
        throw std::invalid_argument("importance has " + std::to_string(loss.importance.size()) +
                                    " entries; accepted: one per rank, " + std::to_string(group.members.size()));
    const auto& plans = operation.schedule->steps();
    for (std::size_t i = 0; i < plans.size(); ++i) {
        if (plans[i].kind != ScheduleOp::Kind::send || !plans[i].lossy || group.fails(command.sequence)) continue;
        const std::size_t given = loss.importance[plans[i].peer].size();
        if (given == 0) continue;
        const PeerId peer = peer_of(group, plans[i].peer);
        const auto message_bytes = static_cast<std::uint32_t>(operation.steps[i].memory.bytes);
        if (endpoint_.importance_fits({.peer = peer,
                                       .message_bytes = message_bytes,
                                       .importance = loss.importance[plans[i].peer],
                                       .unit_bytes = operation.unit_bytes()}))
            continue;
        const std::uint32_t block_bytes = endpoint_.block_bytes(peer, operation.unit_bytes());
        const std::uint64_t blocks = (std::uint64_t{message_bytes} + block_bytes - 1) / block_bytes;
        throw std::invalid_argument("importance for rank " + std::to_string(plans[i].peer) + " has " +
                                    std::to_string(given) + " entries; accepted: one per block of " +
                                    std::to_string(block_bytes) + " bytes, " + std::to_string(blocks));
    }
}

void CollectiveExecutor::allow_loss(SendCommand& send, const LossRules& loss, std::uint32_t member) {
    if (loss.importance.empty() || loss.importance[member].empty()) return;  // all critical
    if (loss.loss_ratio == 0.0 && loss.deadline == Duration{0}) return;
    send.delivery = loss.deadline > Duration{0} ? Delivery::deadline : Delivery::bounded;
    send.loss_ratio = loss.loss_ratio;
    send.deadline = loss.deadline;
    send.patience = loss.patience;
    send.importance = loss.importance[member];
}

// One lossy message has ended with blocks missing.
void CollectiveExecutor::note_abandoned(GroupOperation& operation, std::uint32_t step,
                                        const MessageOutcome& outcome) {
    const Schedule::Step& plan = operation.schedule->steps()[step];
    const bool sent = plan.kind == ScheduleOp::Kind::send;
    operation.result.abandoned.push_back({sent,
                                          plan.peer,
                                          sent ? plan.operands[0].chunk : plan.target,
                                          outcome.message_bytes,
                                          outcome.block_bytes,
                                          outcome.abandoned_bytes,
                                          {outcome.abandoned.begin(), outcome.abandoned.end()}});
}

// A missing contribution counts as zero, and the operations that waited for it continue.
void CollectiveExecutor::fill_absent(Time now, std::uint32_t slot, std::uint32_t step,
                                     const MessageOutcome& outcome) {
    const GroupOperation& operation = operations_[slot];
    const Schedule::Step& plan = operation.schedule->steps()[step];
    StepState& state = operations_[slot].steps[step];
    state.absent.reset(state.memory.bytes, operation.granule_bytes());
    each_run(outcome, [&](std::uint32_t offset, std::uint32_t bytes) {
        state.absent.set(offset, bytes);
        if (std::uint8_t* const target = state.memory.data; target != nullptr) {
            if (plan.operands.empty()) {
                std::memset(target + offset, 0, bytes);
            } else {
                const std::uint8_t* operand = memory_of(operation, plan.operands[0].chunk).data;
                if (target != operand) std::memmove(target + offset, operand + offset, bytes);
                finish_alone(operation, plan, target + offset, bytes);
            }
        }
        produced(now, slot, step, offset, bytes);
    });
}

// Completes a final result to which only this rank contributed.
void CollectiveExecutor::finish_alone(const GroupOperation& operation, const Schedule::Step& plan,
                                      std::uint8_t* target, std::uint32_t bytes) {
    if (!plan.final) return;
    const std::size_t count = bytes / operation.element_bytes;
    if (operation.rescale && operation.average_over == 0)
        operation.multiply(target, target, count, 2.0);  // a final receive adds two
    else if (!operation.rescale && operation.average_over > 1)
        operation.average(target, count, operation.average_over);
}

// Rescales a final sum of `plan`, whose bytes from offset to end are at `target`, to what it would be if all ranks had
// contributed: the average over the contributions that arrived (Weintraub et al., arXiv 2507.07114), times the number
// of ranks for a sum.
void CollectiveExecutor::divide_by_realised(const GroupOperation& operation, const Schedule::Step& plan,
                                            std::uint8_t* target, std::uint32_t offset, std::uint32_t end) {
    // What a receive has combined already counts twice.
    auto all = static_cast<std::uint32_t>(plan.operands.size());
    for (const Schedule::Operand& operand : plan.operands)
        if (operand.producer != Schedule::none && !operation.schedule->steps()[operand.producer].operands.empty())
            ++all;
    for (std::uint32_t at = offset, until = end; at < end; at = until) {
        until = end;
        std::uint32_t came = all;
        for (const Schedule::Operand& operand : plan.operands) {
            if (operand.producer == Schedule::none) continue;
            const Granules& absent = operation.steps[operand.producer].absent;
            std::uint32_t first = 0, last = 0;
            if (!absent.tracked() || !absent.next_run(at, end, true, first, last)) continue;
            if (first == at) --came;
            until = std::min(until, first == at ? last : first);
        }
        const std::size_t count = (until - at) / operation.element_bytes;
        std::uint8_t* const values = target + (at - offset);
        if (operation.average_over > 0)
            operation.average(values, count, came);
        else if (came < all)
            operation.multiply(values, values, count, static_cast<double>(all) / came);
    }
}

}  // namespace dlcp

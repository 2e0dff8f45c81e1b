// An optimizer on sums: what a hub's core does between the last contribution and the reply (PHub, SoCC 2018).
//
// It runs in the receive path, on the sum so far, which is in a near cache, on the last contribution as it lies in its
// packet, and on weights and states that only this core touches: one pass adds, averages and applies.
#include <cstring>
#include <stdexcept>
#include <string>

#include "collective/executor.hpp"

namespace dlcp {

// Throws std::invalid_argument that names the mismatch.
void CollectiveExecutor::check_update(const GroupOperation& operation, const CollectiveCommand& command) {
    const UpdateRules& update = *command.update;
    if (command.type != DataType::f32 || command.op != ReduceOp::sum || command.average_over != 0 ||
        command.coded != nullptr || command.loss != nullptr)
        throw std::invalid_argument(std::string("an update of a ") + name(command.op) + " of " +
                                    name(command.type) + "; accepted: of an exact sum of f32");
    if (update.step == 0 || update.divisor == 0)
        throw std::invalid_argument("step " + std::to_string(update.step) + " and divisor " +
                                    std::to_string(update.divisor) + "; accepted: at least 1");
    if (update.chunks.size() != command.output.size())
        throw std::invalid_argument("weights of " + std::to_string(update.chunks.size()) +
                                    " chunks; accepted: " + std::to_string(command.output.size()));
    const std::size_t states = optimizer_states(update.rule);
    for (const Schedule::Step& plan : operation.schedule->steps()) {
        if (!plan.final) continue;
        if (plan.kind != ScheduleOp::Kind::receive || plan.target.space != Space::output)
            throw std::invalid_argument(
                "the schedule completes results in scratch or by combining; accepted: by"
                " receives into the output");
        const UpdateRules::Chunk& chunk = update.chunks[plan.target.index];
        bool whole = chunk.weights != nullptr || memory_of(operation, plan.target).bytes == 0;
        for (std::size_t i = 0; i < states; ++i)
            whole = whole && (chunk.states[i] != nullptr || chunk.weights == nullptr);
        if (!whole)
            throw std::invalid_argument("chunk " + std::to_string(plan.target.index) + " lacks weights or states");
    }
}

// The sum of `so_far` and `last` (nullptr: there is none so far), `bytes` from `offset` of the chunk on, is the gradient.
// `target`, which may be `so_far`, becomes the next weights.
void CollectiveExecutor::update(const GroupOperation& operation, const Schedule::Step& plan,
                                const std::uint8_t* so_far, const std::uint8_t* last, std::uint8_t* target,
                                std::uint32_t offset, std::uint32_t bytes) {
    const UpdateRules& update = *operation.update;
    const UpdateRules::Chunk& chunk = update.chunks[plan.target.index];
    const std::size_t first = offset / sizeof(float);
    if (reinterpret_cast<std::uintptr_t>(last) % alignof(float) != 0) {  // a piece of a packet may begin anywhere
        if (so_far == nullptr)
            std::memcpy(target, last, bytes);
        else
            operation.reduce(target, so_far, last, bytes / sizeof(float));
        so_far = nullptr;
        last = target;
    }
    const float* const contributions[] = {reinterpret_cast<const float*>(so_far != nullptr ? so_far : last),
                                          reinterpret_cast<const float*>(last)};
    OptimizerMemory memory;
    memory.contributions = {contributions, so_far != nullptr ? 2u : 1u};
    memory.divisor = update.divisor;
    memory.count = bytes / sizeof(float);
    memory.weights = memory.next_weights = chunk.weights + first;
    const std::size_t states = optimizer_states(update.rule);
    for (std::size_t i = 0; i < states; ++i) memory.states[i] = chunk.states[i] + first;
    dlcp::apply(*operation.optimizer_step, memory, update.root, available_variants().back());
    // Replies leave from the target: the weights go on to change while a reply may still have to be repaired.
    std::memcpy(target, memory.next_weights, bytes);
}

}  // namespace dlcp

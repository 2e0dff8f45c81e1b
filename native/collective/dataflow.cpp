// Blocks in, results on: combines what arrives, and hands each completed result to the operations that wait for it,
// down to the blocks of messages that may now leave.
//
// All of it happens inside Endpoint::handle_packets (or receive, for early blocks), on the thread that drives the
// endpoint.
#include <algorithm>
#include <cstring>

#include "collective/executor.hpp"
#include "engine/prefetch.hpp"

namespace dlcp {
namespace {

// Bytes combined at a time when there are more than two operands: the running sum stays in the first-level cache.
constexpr std::uint32_t tile_bytes = 8192;

}  // namespace

void CollectiveExecutor::on_block(void* context, std::uint64_t token, Time now, std::uint32_t offset,
                                  const std::uint8_t* payload, std::uint32_t bytes) {
    const StepId id = StepId::of(token);
    static_cast<CollectiveExecutor*>(context)->take_block(now, id.slot, id.step, offset, payload, bytes);
}

// A block has arrived. Bytes whose operand is not available yet are put aside.
void CollectiveExecutor::take_block(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset,
                                    const std::uint8_t* payload, std::uint32_t bytes) {
    GroupOperation& operation = operations_[slot];
    if (operation.ended()) return;
    operation.result.received_bytes += bytes;
    const Schedule::Step& plan = operation.schedule->steps()[step];
    if (plan.operands.empty() || plan.operands[0].producer == Schedule::none) {
        apply(now, slot, step, offset, payload, bytes);
        return;
    }
    StepState& state = operation.steps[step];
    const Granules& ready = operation.steps[plan.operands[0].producer].produced;
    const std::uint32_t end = offset + bytes;
    std::uint32_t first = 0, last = 0;
    for (std::uint32_t at = offset; at < end && ready.next_run(at, end, false, first, last); at = last) {
        if (!state.waiting.tracked()) state.waiting.reset(state.memory.bytes, operation.granule_bytes());
        state.waiting.set(first, last - first);
        if (payload == nullptr) continue;
        if (state.early.data == nullptr) state.early = pool_.take(state.memory.bytes);
        std::memcpy(state.early.data.get() + first, payload + (first - offset), last - first);
    }
    for (std::uint32_t at = offset; at < end && ready.next_run(at, end, true, first, last); at = last)
        apply(now, slot, step, first, payload == nullptr ? nullptr : payload + (first - offset), last - first);
}

// The received bytes become the target.
void CollectiveExecutor::apply(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset,
                               const std::uint8_t* payload, std::uint32_t bytes) {
    GroupOperation& operation = operations_[slot];
    const Schedule::Step& plan = operation.schedule->steps()[step];
    StepState& state = operation.steps[step];
    if (payload != nullptr && state.memory.data != nullptr) {
        std::uint8_t* target = state.memory.data + offset;
        const std::size_t count = bytes / operation.element_bytes;
        const std::uint8_t* so_far =
            plan.operands.empty() ? nullptr : memory_of(operation, plan.operands[0].chunk).data + offset;
        const bool updates = plan.final && operation.update;
        // The next block most likely follows, once its tag has been checked.
        const std::size_t next_bytes = std::min<std::size_t>(bytes, state.memory.bytes - offset - bytes);
        prefetch_payload<true>(target + bytes, next_bytes);
        if (so_far != nullptr && so_far != target) prefetch_payload<false>(so_far + bytes, next_bytes);
        if (updates)
            update(operation, plan, so_far, payload, target, offset, bytes);
        else if (so_far == nullptr)
            std::memcpy(target, payload, bytes);
        else
            operation.reduce(target, so_far, payload, count);
        if (plan.final && !updates && operation.average_over > 1)
            operation.average(target, count, operation.average_over);
    }
    produced(now, slot, step, offset, bytes);
}

// The operand of a receive is available between offset and end, so the bytes that arrived before it can be combined.
void CollectiveExecutor::apply_waiting(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset,
                                       std::uint32_t end) {
    StepState& state = operations_[slot].steps[step];
    if (!state.waiting.tracked()) return;
    std::uint32_t first = 0, last = 0;
    for (std::uint32_t at = offset; at < end && state.waiting.next_run(at, end, true, first, last); at = last)
        apply(now, slot, step, first, state.early.data == nullptr ? nullptr : state.early.data.get() + first,
              last - first);
}

void CollectiveExecutor::combine(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset,
                                 std::uint32_t end) {
    GroupOperation& operation = operations_[slot];
    const Schedule::Step& plan = operation.schedule->steps()[step];
    StepState& state = operation.steps[step];
    const std::size_t operands = plan.operands.size();
    const auto operand = [&](std::size_t i, std::uint32_t at) {
        return memory_of(operation, plan.operands[i].chunk).data + at;
    };
    if (state.memory.data != nullptr && operand(0, 0) != nullptr && operation.coded) {
        combine_coded(operation, step, offset, end);
    } else if (state.memory.data != nullptr && operand(0, 0) != nullptr) {
        alignas(64) std::uint8_t sum[tile_bytes];
        for (std::uint32_t at = offset; at < end; at += std::min(tile_bytes, end - at)) {
            const std::uint32_t bytes = std::min(tile_bytes, end - at);
            const std::size_t count = bytes / operation.element_bytes;
            std::uint8_t* target = state.memory.data + at;
            if (operands == 1) {
                if (target != operand(0, at)) std::memmove(target, operand(0, at), bytes);
            } else {
                // The target may be one of the operands, so it is written last.
                const std::uint8_t* so_far = operand(0, at);
                for (std::size_t i = 1; i < operands; ++i) {
                    std::uint8_t* out = i + 1 == operands ? target : sum;
                    operation.reduce(out, so_far, operand(i, at), count);
                    so_far = out;
                }
            }
            if (plan.final && operation.rescale)
                divide_by_realised(operation, plan, target, at, at + bytes);
            else if (plan.final && operation.average_over > 1)
                operation.average(target, count, operation.average_over);
        }
    }
    produced(now, slot, step, offset, end - offset);
}

// One operand has become available between offset and end: combines the ranges that the other operands, from `operand`
// on, have too.
void CollectiveExecutor::combine_ready(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset,
                                       std::uint32_t end, std::size_t operand) {
    const GroupOperation& operation = operations_[slot];
    const auto& operands = operation.schedule->steps()[step].operands;
    while (operand < operands.size() && operands[operand].producer == Schedule::none) ++operand;
    if (operand == operands.size()) {
        combine(now, slot, step, offset, end);
        return;
    }
    const Granules& ready = operation.steps[operands[operand].producer].produced;
    std::uint32_t first = 0, last = 0;
    for (std::uint32_t at = offset; at < end && ready.next_run(at, end, true, first, last); at = last)
        combine_ready(now, slot, step, first, last, operand + 1);
}

// Bytes of the target of `step` have their final value.
void CollectiveExecutor::produced(Time now, std::uint32_t slot, std::uint32_t step, std::uint32_t offset,
                                  std::uint32_t bytes) {
    GroupOperation& operation = operations_[slot];
    const Schedule::Step& plan = operation.schedule->steps()[step];
    StepState& state = operation.steps[step];
    state.left_bytes -= bytes;
    if (state.produced.tracked()) state.produced.set(offset, bytes);
    for (const std::uint32_t consumer : plan.consumers) {
        switch (operation.schedule->steps()[consumer].kind) {
            case ScheduleOp::Kind::send: release(now, operation, consumer, offset, offset + bytes); break;
            case ScheduleOp::Kind::receive: apply_waiting(now, slot, consumer, offset, offset + bytes); break;
            case ScheduleOp::Kind::combine: combine_ready(now, slot, consumer, offset, offset + bytes, 0); break;
        }
    }
    if (state.left_bytes == 0 && (plan.kind == ScheduleOp::Kind::combine || state.arrived))
        step_over(operation, step);
}

// Releases the blocks that the bytes between offset and end complete.
void CollectiveExecutor::release(Time now, GroupOperation& operation, std::uint32_t step, std::uint32_t offset,
                                 std::uint32_t end) {
    StepState& state = operation.steps[step];
    const std::uint8_t* source = state.memory.data;
    if (state.copy != nullptr && source != nullptr)
        std::memcpy(state.copy + offset, source + offset, end - offset);
    if (!state.open || state.over) return;
    const std::uint32_t block_bytes = endpoint_.block_bytes(state.message);
    if (block_bytes == 0) return;  // it is over
    const auto total = static_cast<std::uint32_t>(state.memory.bytes);
    const Granules& ready = operation.steps[operation.schedule->steps()[step].operands[0].producer].produced;
    std::uint32_t run_first = 0, run_blocks = 0;
    for (std::uint32_t block = offset / block_bytes; std::uint64_t{block} * block_bytes < end; ++block) {
        const std::uint32_t from = block * block_bytes;
        const std::uint32_t bytes = std::min(block_bytes, total - from);
        const bool whole = offset <= from && from + bytes <= end;
        if (!whole && !ready.all(from, bytes)) continue;
        state.left_bytes -= bytes;
        if (run_blocks > 0 && run_first + run_blocks != block) {
            endpoint_.release_blocks(now, state.message, run_first, run_blocks);
            run_blocks = 0;
        }
        if (run_blocks++ == 0) run_first = block;
    }
    if (run_blocks > 0) endpoint_.release_blocks(now, state.message, run_first, run_blocks);
    if (state.detached && state.left_bytes == 0) step_over(operation, step);
}

}  // namespace dlcp

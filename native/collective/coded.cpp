// Sums of coded values: what their commands must fulfil, and how the rank that adds makes one (codec.hpp).
#include <stdexcept>
#include <string>

#include "collective/executor.hpp"

namespace dlcp {
namespace {

void check_chunks(std::span<const ChunkMemory> chunks, Codec codec) {
    for (const ChunkMemory& chunk : chunks)
        if (chunk.bytes % group_bytes(codec) != 0)
            throw std::invalid_argument("a chunk has " + std::to_string(chunk.bytes) +
                                        " bytes; accepted: whole groups of " + name(codec) + ", of " +
                                        std::to_string(group_bytes(codec)) + " bytes");
}

}  // namespace

// Throws std::invalid_argument that names the mismatch. Finds where in the residual each sum lies.
void CollectiveExecutor::check_coded(GroupOperation& operation, const CollectiveCommand& command) {
    const CodedRules& coded = *command.coded;
    if (command.op != ReduceOp::sum)
        throw std::invalid_argument(std::string(name(command.op)) + " of coded values; accepted: a sum");
    if ((coded.residual.before == nullptr) != (coded.residual.after == nullptr))
        throw std::invalid_argument(
            "half of a residual; accepted: what was kept and room for what will be, or none");
    check_chunks(command.input, coded.codec);
    check_chunks(command.output, coded.codec);
    for (const Schedule::Step& plan : operation.schedule->steps())
        if (plan.kind == ScheduleOp::Kind::receive && !plan.operands.empty())
            throw std::invalid_argument(
                "this schedule adds as it receives; accepted for coded values: one that combines");
    operation.coded_first.assign(operation.steps.size(), 0);
    std::size_t values = 0;
    for (std::size_t i = 0; i < operation.steps.size(); ++i) {
        if (operation.schedule->steps()[i].kind != ScheduleOp::Kind::combine) continue;
        operation.coded_first[i] = values;
        values += operation.steps[i].memory.bytes / group_bytes(coded.codec) * group_values;
    }
}

// Adds the operands between offset and end into the target of the step, or into CodedRules::values.
void CollectiveExecutor::combine_coded(const GroupOperation& operation, std::uint32_t step, std::uint32_t offset,
                                       std::uint32_t end) {
    const CodedRules& coded = *operation.coded;
    const Schedule::Step& plan = operation.schedule->steps()[step];
    std::uint8_t* target = operation.steps[step].memory.data;
    const std::size_t first = operation.coded_first[step] + offset / group_bytes(coded.codec) * group_values;
    addresses_.clear();
    for (const Schedule::Operand& operand : plan.operands)
        addresses_.push_back(memory_of(operation, operand.chunk).data + offset);
    // A sum that goes on to another rank that adds is not the mean yet.
    const std::uint32_t divisor = plan.final ? operation.average_over : 1;
    CodedSum sum{.operands = addresses_, .divisor = divisor, .residual = coded.residual};
    if (coded.residual.before != nullptr) {
        sum.residual.before += first;
        sum.residual.after += first;
    }
    if (coded.values == nullptr)
        sum.coded = target + offset;
    else
        sum.values = coded.values + first;
    sum_coded(coded.codec, sum, (end - offset) / group_bytes(coded.codec), available_variants().back());
}

}  // namespace dlcp

#include "collective/schedule.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace dlcp {
namespace {

[[noreturn]] void refuse(std::size_t op, const std::string& what) {
    throw std::invalid_argument("operation " + std::to_string(op) + ": " + what);
}

// The latest operation that wrote each chunk.
class Producers {
public:
    Producers(std::uint32_t input, std::uint32_t output, std::size_t scratch) {
        latest_[0].assign(input, Schedule::none);
        latest_[1].assign(output, Schedule::none);
        latest_[2].assign(scratch, Schedule::none);
    }
    std::uint32_t& of(std::size_t op, Chunk chunk) {
        const auto space = static_cast<std::size_t>(chunk.space);
        if (space >= spaces) refuse(op, "space is " + std::to_string(space) + "; accepted: 0 to 2");
        if (chunk.index >= latest_[space].size())
            refuse(op, "chunk " + std::to_string(chunk.index) + " of space " + std::to_string(space) +
                           "; accepted: below " + std::to_string(latest_[space].size()));
        return latest_[space][chunk.index];
    }

private:
    std::array<std::vector<std::uint32_t>, spaces> latest_;
};

}  // namespace

Schedule::Schedule(std::uint32_t world_size, std::uint32_t rank, std::uint32_t input_chunks,
                   std::uint32_t output_chunks, std::vector<Chunk> scratch, std::vector<ScheduleOp> ops)
    : world_size_(world_size),
      rank_(rank),
      chunks_{input_chunks, output_chunks, static_cast<std::uint32_t>(scratch.size())},
      scratch_(std::move(scratch)) {
    using Kind = ScheduleOp::Kind;
    if (rank >= world_size)
        throw std::invalid_argument("rank is " + std::to_string(rank) + "; accepted: below the world size, " +
                                    std::to_string(world_size));
    for (std::size_t i = 0; i < scratch_.size(); ++i) {
        const Chunk like = scratch_[i];
        if (like.space == Space::scratch || static_cast<std::size_t>(like.space) >= spaces ||
            like.index >= chunks(like.space))
            throw std::invalid_argument("scratch chunk " + std::to_string(i) +
                                        ": is to be as large as a chunk that is not there");
    }
    Producers producers(input_chunks, output_chunks, scratch_.size());
    steps_.reserve(ops.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
        ScheduleOp& op = ops[i];
        Step step{op.kind, op.final, op.lossy, op.peer, op.message, op.target, {}, {}};
        const bool moves = op.kind == Kind::send || op.kind == Kind::receive;
        if (op.lossy && !moves) refuse(i, "is lossy, which only messages are");
        if (moves && (op.peer >= world_size || op.peer == rank))
            refuse(i, "peer is " + std::to_string(op.peer) + "; accepted: another rank below " +
                          std::to_string(world_size));
        if (moves && op.message >= max_messages)
            refuse(i, "message is " + std::to_string(op.message) + "; accepted: below " +
                          std::to_string(max_messages));
        const std::size_t operands = op.operands.size();
        if (op.lossy && op.kind == Kind::receive && operands > 0 && producers.of(i, op.operands[0]) != none)
            refuse(i, "is a lossy receive with an operand that is not there at the start");
        if (op.kind == Kind::send ? operands != 1 : op.kind == Kind::receive ? operands > 1 : operands < 1)
            refuse(i, "has " + std::to_string(operands) +
                          " operands; accepted: 1 to send, 0 or 1 to receive, at "
                          "least 1 to combine");
        for (const Chunk chunk : op.operands) {
            const std::uint32_t producer = producers.of(i, chunk);
            step.operands.push_back({chunk, producer});
            if (producer == none) continue;
            std::vector<std::uint32_t>& consumers = steps_[producer].consumers;
            if (consumers.empty() || consumers.back() != i) consumers.push_back(static_cast<std::uint32_t>(i));
        }
        if (op.kind != Kind::send) {
            if (op.target.space == Space::input) refuse(i, "writes to the input");
            producers.of(i, op.target) = static_cast<std::uint32_t>(i);
        }
        if (moves) peers_.push_back(op.peer);
        steps_.push_back(std::move(step));
    }
    std::sort(peers_.begin(), peers_.end());
    peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
}

}  // namespace dlcp

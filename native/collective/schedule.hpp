// A schedule: what one rank does in a collective, as data.
//
// Memory is named, not pointed to: a chunk is (space, index). `input` and `output` are the caller's, `scratch` the
// executor's. The operations stand in program order, and an operation that reads a chunk reads what the latest
// operation before it in this order wrote there (or, if none did, what the chunk held at the start). That is the
// whole of the dependencies; they hold block by block: a block of a chunk that a `send` names leaves as soon as
// the operation that it waits for has produced its bytes.
//
//   send      source = operands[0] goes to `peer`
//   receive   what comes from `peer`, combined with operands[0] if there is one, becomes `target`
//   combine   operands[0] op operands[1] op …, in this order, becomes `target`; a single operand is copied
//
// `message` counts the messages from one rank to another within the collective, so that both ends pair them.
// `final` marks what completes a result: an average divides there.
// `lossy` marks messages, at both ends, that may lose blocks if the collective is run with LossRules (executor.hpp): on
// the way to the rank that owns a result, never on the way back, so that all ranks end with the same bits. What a lossy
// receive does not get counts as nothing: the target is the operand alone, which is there at the start, or zero.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dlcp {

enum class Space : std::uint8_t { input, output, scratch };
inline constexpr std::size_t spaces = 3;

struct Chunk {
    Space space = Space::output;
    std::uint32_t index = 0;
    friend bool operator==(Chunk, Chunk) = default;
};

struct ScheduleOp {
    enum class Kind : std::uint8_t { send, receive, combine };
    Kind kind = Kind::send;
    bool final = false;
    bool lossy = false;         // send, receive
    std::uint32_t peer = 0;     // rank within the group; send, receive
    std::uint32_t message = 0;  // send, receive; below max_messages
    Chunk target;               // receive, combine
    std::vector<Chunk> operands;
};

class Schedule {
public:
    // What a message number fits in: it is part of the tag.
    static constexpr std::uint32_t max_messages = 1u << 12;
    static constexpr std::uint32_t none = UINT32_MAX;

    // `chunks`: how many the caller brings in input and output. `scratch`: one entry per scratch chunk, the input or
    // output chunk that it is as large as. Throws std::invalid_argument, naming the operation and what is wrong.
    Schedule(std::uint32_t world_size, std::uint32_t rank, std::uint32_t input_chunks, std::uint32_t output_chunks,
             std::vector<Chunk> scratch, std::vector<ScheduleOp> ops);

    struct Operand {
        Chunk chunk;
        std::uint32_t producer =
            none;  // the operation that must have produced the bytes; none: there at the start
    };
    struct Step {
        ScheduleOp::Kind kind;
        bool final;
        bool lossy;
        std::uint32_t peer;
        std::uint32_t message;
        Chunk target;
        std::vector<Operand> operands;
        std::vector<std::uint32_t> consumers;  // operations that wait for what this one produces
    };

    std::uint32_t world_size() const { return world_size_; }
    std::uint32_t rank() const { return rank_; }
    std::uint32_t chunks(Space space) const { return chunks_[static_cast<std::size_t>(space)]; }
    const std::vector<Chunk>& scratch() const { return scratch_; }
    const std::vector<Step>& steps() const { return steps_; }
    // Ranks that this one exchanges messages with, ascending.
    const std::vector<std::uint32_t>& peers() const { return peers_; }

private:
    std::uint32_t world_size_;
    std::uint32_t rank_;
    std::uint32_t chunks_[spaces];
    std::vector<Chunk> scratch_;
    std::vector<Step> steps_;
    std::vector<std::uint32_t> peers_;
};

}  // namespace dlcp

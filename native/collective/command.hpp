// What the executor is asked to run: a collective, or a single message, of a group.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/codec.hpp"
#include "collective/element.hpp"
#include "collective/optimizer.hpp"
#include "collective/partition.hpp"
#include "collective/schedule.hpp"
#include "engine/endpoint.hpp"

namespace dlcp {

// How the lossy messages of a schedule may lose blocks. Abandoned blocks are not in the result; both ends list them in
// CollectiveResult::abandoned. Nothing else of a collective can be lost.
struct LossRules {
    // Of each lossy message that this rank sends: fraction of its bytes that may be abandoned, [0, 1).
    double loss_ratio = 0.0;
    // > 0: the receiver ends it this long after its first packet, budget or not; critical blocks are awaited even so.
    Duration deadline{0};
    // >= 0: if a message takes longer than this after the start, its least important unsent droppable blocks are
    // abandoned within the budget (SendCommand::patience). Not with a deadline.
    Duration patience{-1};
    // By rank in the group: the importance of the blocks of the lossy message to it, as SendCommand::importance. Empty,
    // or an empty entry: all are critical. Read during start() only.
    std::span<const std::span<const std::uint8_t>> importance;
    // A final result is divided by the number of contributions that arrived, and, for a sum, multiplied by the number
    // of ranks. Otherwise a missing contribution counts as zero. Sum only.
    bool rescale = false;
};

// The memory of a collective holds coded groups (codec.hpp) in place of elements; a chunk is a whole number of groups.
// The rank that adds decodes, adds in the schedule's order, divides by average_over if the sum is final, and codes it
// again, with what `residual` holds of its part; or it leaves the sum decoded in `values`. Its part is all that its
// schedule combines, in the order of the schedule. Sum only, and only schedules that add with `combine`.
struct CodedRules {
    Codec codec = Codec::int4;
    Residual residual;        // of this rank's part; in use until the operation is over
    float* values = nullptr;  // room for this rank's part, whole groups; nullptr: the sum is coded
};

// A final result is not the sum but what an optimizer makes of it: the sum, divided by `divisor`, is the gradient of the
// weights that this rank keeps, and the next weights become the target. Block by block, as sums are completed. Float32 and
// sums only; the steps that are final receive into output chunks.
struct UpdateRules {
    OptimizerRule rule;
    std::uint64_t step = 1;     // of the optimizer, the first being 1
    std::uint32_t divisor = 1;  // how many gradients the sum is made of
    SquareRoot root;            // of Adam
    // Per output chunk, as long as it; in use until the operation is over. States: as many as optimizer_states() says.
    struct Chunk {
        float* weights = nullptr;
        std::array<float*, optimizer_states_max> states{};
    };
    std::vector<Chunk> chunks;
};

struct CollectiveCommand {
    std::uint32_t group = 0;
    std::shared_ptr<const Schedule> schedule;
    std::uint32_t sequence = 0;   // of this group's collectives; the low 20 bits count
    std::uint32_t signature = 0;  // 28 bits: what all ranks must agree on (kind, type, reduction, root, sizes)
    std::span<const ChunkMemory> input;
    std::span<const ChunkMemory> output;
    DataType type = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    std::uint32_t average_over = 0;  // > 0: divide final results
    std::uint8_t traffic_class = 0;
    Duration timeout{-1};  // negative: none
    // Short messages leave from copies, so that the collective waits neither for their acknowledgement nor for a repeat.
    // false: of many short messages, for which that would copy the whole tensor.
    bool copies_short = true;
    // nullptr: lossy messages are reliable like all others. Read during start() only.
    const LossRules* loss = nullptr;
    // nullptr: elements of `type`. Read during start() only.
    const CodedRules* coded = nullptr;
    // nullptr: results are sums. Read during start() only.
    const UpdateRules* update = nullptr;
};

// One message between two members: send, receive, receive from anyone.
struct MessageCommand {
    std::uint32_t group = 0;
    bool sending = false;
    std::uint32_t peer = UINT32_MAX;  // rank in the group; UINT32_MAX: from anyone
    std::uint32_t tag = 0;            // the user's
    ChunkMemory memory;
    std::uint8_t traffic_class = 0;
    Duration timeout{-1};
};

}  // namespace dlcp

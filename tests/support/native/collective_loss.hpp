// Judges what a bounded collective lost: rank by rank as they end, and then between ranks.
//
//   rules    nothing is given up but blocks of lossy messages that their sender called droppable, within its budget unless
//            its deadline has passed
//   ends     the sender and the owner of a result name the same blocks
//   results  every rank has the bits of a slow run in which what the owners name is missing
//   mass     what senders name and what was applied make up all inputs: element by element, exactly for integers, to
//            1e-6 of what was added for f32 and f64; of rescaled results after the scale is taken out
//
// Ranks that failed say nothing, and the parts that they own are only held to be equal at all others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/native/collective_world.hpp"

namespace dlcp::test {

class LossJudge {
public:
    explicit LossJudge(const CollectivePlan& plan);

    // A rank that has ended without error; its memory is looked at now. Empty: all is well.
    std::string take(const Operation& operation);
    // Once no more ranks end. `contents`: all ranks' memory before.
    std::string judge(std::vector<RankMemory> contents) const;

private:
    // Sender, receiver, number.
    using Message = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
    using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
    struct Rank {
        std::map<Message, Ranges> sent, missing;
        std::vector<std::vector<std::uint8_t>> output;
    };

    std::string take_message(const Operation& operation, const CollectiveResult::Abandoned& abandoned, Rank& rank);
    std::string judge_allowance(const Operation& operation, const CollectiveResult::Abandoned& abandoned,
                                const Ranges& ranges) const;
    std::string judge_ends() const;
    std::string judge_results(const std::vector<RankMemory>& wanted) const;
    std::string judge_mass(const std::vector<RankMemory>& before) const;
    std::string judge_part(std::uint32_t part, const std::vector<RankMemory>& before) const;
    std::uint32_t input_of(std::uint32_t rank, std::uint32_t part) const;

    CollectivePlan plan_;
    std::vector<std::uint32_t> owners_;  // by part
    std::vector<std::optional<Rank>> ranks_;
};

}  // namespace dlcp::test

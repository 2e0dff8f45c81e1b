#include "collective_oracle.hpp"

#include <deque>
#include <map>
#include <stdexcept>
#include <tuple>

#include "collective/reduce.hpp"

namespace dlcp::test {
namespace {

using Message = std::vector<std::uint8_t>;
// From, to, number.
using Messages = std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Message>;

class SlowRank {
public:
    SlowRank(const RankPlan& plan, RankMemory& memory) : schedule_(*plan.schedule), memory_(memory) {
        for (const Chunk like : schedule_.scratch()) scratch_.emplace_back(bytes_of(like).size());
        absent_.resize(schedule_.steps().size());
    }

    bool over() const { return next_ == schedule_.steps().size(); }

    // Runs as far as it gets. False: not a single operation.
    bool run(DataType type, ReduceOp op, std::uint32_t average_over, Messages& messages, const Losses& losses) {
        const std::size_t first = next_;
        for (; !over(); ++next_) {
            const Schedule::Step& step = schedule_.steps()[next_];
            if (step.kind == ScheduleOp::Kind::send) {
                messages[{schedule_.rank(), step.peer, step.message}] = bytes_of(step.operands[0].chunk);
                continue;
            }
            std::vector<Message> terms;
            for (const auto& operand : step.operands) terms.push_back(bytes_of(operand.chunk));
            if (step.kind == ScheduleOp::Kind::receive) {
                const auto found = messages.find({step.peer, schedule_.rank(), step.message});
                if (found == messages.end()) break;
                terms.push_back(std::move(found->second));
                if (const auto lost = losses.missing.find(found->first); lost != losses.missing.end())
                    lose(step, lost->second, terms.back().size());
                messages.erase(found);
            }
            Message& target = bytes_of(step.target);
            const std::size_t count = target.size() / element_bytes(type);
            for (const Message& term : terms)
                if (term.size() != target.size()) throw std::logic_error("chunks of different sizes meet");
            Message sum = terms.front();
            for (std::size_t i = 1; i < terms.size(); ++i)
                find_reduce(type, op, Variant::portable)(sum.data(), sum.data(), terms[i].data(), count);
            // What did not come leaves the operand as it is, or nothing.
            for (std::size_t at = 0; at < absent_[next_].size(); ++at)
                if (absent_[next_][at]) sum[at] = terms.size() > 1 ? terms.front()[at] : 0;
            if (step.final && losses.rescale)
                rescale(type, average_over, sum);
            else if (step.final && average_over > 1)
                find_average(type, Variant::portable)(sum.data(), count, average_over);
            target = std::move(sum);
        }
        return next_ != first;
    }

private:
    void lose(const Schedule::Step& step, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ranges,
              std::size_t bytes) {
        if (!step.lossy) throw std::logic_error("what may not lose has lost");
        absent_[next_].resize(bytes);
        for (const auto& [first, end] : ranges)
            for (std::uint32_t at = first; at < end; ++at) absent_[next_][at] = true;
    }

    // How many contributions there are at a byte of what a final operation makes; `came`: without what is absent.
    std::uint32_t contributions(std::size_t index, std::size_t at, bool came) const {
        const Schedule::Step& step = schedule_.steps()[index];
        std::uint32_t count = 0;
        for (const auto& operand : step.operands)
            count += operand.producer == Schedule::none ? 1 : contributions(operand.producer, at, came);
        const bool absent = came && !absent_[index].empty() && absent_[index][at];
        return count + (step.kind == ScheduleOp::Kind::receive && !absent);
    }

    // Element by element. What a receive leaves alone stays to the bit, though it be a NaN.
    void rescale(DataType type, std::uint32_t average_over, Message& sum) const {
        const std::size_t width = element_bytes(type);
        const bool combines = schedule_.steps()[next_].kind == ScheduleOp::Kind::combine;
        for (std::size_t at = 0; at < sum.size(); at += width) {
            const std::uint32_t all = contributions(next_, at, false), came = contributions(next_, at, true);
            if (average_over > 0 && (came > 1 || combines))
                find_average(type, Variant::portable)(sum.data() + at, 1, came);
            else if (average_over == 0 && came < all)
                find_multiply(type, Variant::portable)(sum.data() + at, sum.data() + at, 1,
                                                       static_cast<double>(all) / came);
        }
    }

    std::vector<std::uint8_t>& bytes_of(Chunk chunk) {
        if (chunk.space == Space::scratch) return scratch_[chunk.index];
        if (memory_.in_place && chunk.space == Space::input && chunk.index == memory_.in_place->first)
            chunk = {Space::output, memory_.in_place->second};
        return (chunk.space == Space::input ? memory_.input : memory_.output)[chunk.index];
    }

    const Schedule& schedule_;
    RankMemory& memory_;
    std::vector<Message> scratch_;
    std::vector<std::vector<bool>> absent_;  // by operation and byte; empty: all came
    std::size_t next_ = 0;
};

}  // namespace

void run_slowly(const ScheduleSet& set, DataType type, ReduceOp op, std::uint32_t average_over,
                std::vector<RankMemory>& memory, const Losses& losses) {
    Messages messages;
    std::deque<SlowRank> ranks;
    for (std::size_t i = 0; i < set.ranks.size(); ++i) ranks.emplace_back(set.ranks[i], memory[i]);
    bool moved = true;
    bool over = false;
    while (!over) {
        if (!moved) throw std::logic_error(set.name + ": ranks wait for each other");
        moved = false;
        over = true;
        for (SlowRank& rank : ranks) {
            if (!rank.over()) moved |= rank.run(type, op, average_over, messages, losses);
            over &= rank.over();
        }
    }
    if (!messages.empty()) throw std::logic_error(set.name + ": a message that nobody takes");
    for (RankMemory& each : memory)
        if (each.in_place) each.input[each.in_place->first] = each.output[each.in_place->second];
}

}  // namespace dlcp::test

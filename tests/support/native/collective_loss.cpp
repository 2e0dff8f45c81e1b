#include "collective_loss.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/wire.hpp"

namespace dlcp::test {
namespace {

// Of what was added, in value.
constexpr double mass_tolerance = 1e-6;
// Sums of larger values may overflow on the way.
constexpr double largest_judged = 1e37;
// Results this small round to denormals.
constexpr double smallest_judged = 1e-42;

std::string words(std::uint32_t from, std::uint32_t to) {
    return "rank " + std::to_string(from) + " to rank " + std::to_string(to);
}

bool is_set(const std::vector<std::uint64_t>& bits, std::uint32_t i) { return (bits[i / 64] >> i % 64 & 1) != 0; }

double floating(DataType type, const std::uint8_t* at) {
    if (type == DataType::f64) {
        double value;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::uint64_t integer(std::size_t width, const std::uint8_t* at) {
    std::uint64_t value = 0;
    std::memcpy(&value, at, width);
    return value;
}

}  // namespace

LossJudge::LossJudge(const CollectivePlan& plan)
    : plan_(plan), owners_(plan.set->parts, UINT32_MAX), ranks_(plan.set->world_size()) {
    for (std::uint32_t rank = 0; rank < plan.set->world_size(); ++rank) {
        const RankPlan& chunks = plan.set->ranks[rank];
        for (const Schedule::Step& step : chunks.schedule->steps())
            if (step.final) owners_[chunks.output_parts[step.target.index]] = rank;
    }
}

std::string LossJudge::take(const Operation& operation) {
    Rank& rank = ranks_[operation.member].emplace();
    for (const CollectiveResult::Abandoned& each : operation.result.abandoned)
        if (std::string wrong = take_message(operation, each, rank); !wrong.empty()) return wrong;
    for (const Operation::Place& place : operation.output)
        rank.output.emplace_back(operation.arena.begin() + static_cast<std::ptrdiff_t>(place.at),
                                 operation.arena.begin() + static_cast<std::ptrdiff_t>(place.at + place.bytes));
    return "";
}

std::string LossJudge::take_message(const Operation& operation, const CollectiveResult::Abandoned& abandoned,
                                    Rank& rank) {
    const std::uint32_t from = abandoned.sent ? operation.member : abandoned.peer;
    const std::uint32_t to = abandoned.sent ? abandoned.peer : operation.member;
    const std::string who = "what it says was given up from " + words(from, to) + ": ";
    const RankPlan& chunks = plan_.set->ranks[operation.member];
    const auto& steps = chunks.schedule->steps();
    const auto kind = abandoned.sent ? ScheduleOp::Kind::send : ScheduleOp::Kind::receive;
    const auto step = std::find_if(steps.begin(), steps.end(), [&](const Schedule::Step& each) {
        return each.kind == kind && each.lossy && each.peer == abandoned.peer &&
               (abandoned.sent ? each.operands[0].chunk : each.target) == abandoned.chunk;
    });
    if (step == steps.end()) return who + "no such message may lose";
    const Chunk like = abandoned.chunk.space == Space::scratch ? chunks.schedule->scratch()[abandoned.chunk.index]
                                                               : abandoned.chunk;
    const auto& parts = like.space == Space::input ? chunks.input_parts : chunks.output_parts;
    const std::uint64_t bytes = plan_.part_elements[parts[like.index]] * std::uint64_t{element_bytes(plan_.type)};
    if (abandoned.message_bytes != bytes)
        return who + "a message of " + std::to_string(abandoned.message_bytes) + " bytes, not " +
               std::to_string(bytes);
    if (abandoned.block_bytes == 0 || abandoned.block_bytes % 16 != 0)
        return who + "blocks of " + std::to_string(abandoned.block_bytes) + " bytes";
    const std::uint32_t count = wire::block_count(abandoned.message_bytes, abandoned.block_bytes);
    Ranges ranges;
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < abandoned.blocks.size() * 64; ++i) {
        if (!is_set(abandoned.blocks, i)) continue;
        if (i >= count) return who + "block " + std::to_string(i) + " of " + std::to_string(count);
        const std::uint32_t first = i * std::uint32_t{abandoned.block_bytes};
        ranges.emplace_back(first, std::min(abandoned.message_bytes, first + abandoned.block_bytes));
        total += ranges.back().second - first;
    }
    if (ranges.empty()) return who + "nothing";
    if (total != abandoned.abandoned_bytes)
        return who + std::to_string(abandoned.abandoned_bytes) + " bytes; its bits say " + std::to_string(total);
    if (abandoned.sent)
        if (std::string wrong = judge_allowance(operation, abandoned, ranges); !wrong.empty()) return who + wrong;
    auto& kept = abandoned.sent ? rank.sent : rank.missing;
    if (!kept.emplace(Message{from, to, step->message}, std::move(ranges)).second) return who + "is there twice";
    return "";
}

std::string LossJudge::judge_allowance(const Operation& operation, const CollectiveResult::Abandoned& abandoned,
                                       const Ranges& ranges) const {
    const RankLoss& rules = plan_.loss->ranks[operation.member];
    if (operation.importance.empty() || operation.importance[abandoned.peer].empty())
        return "all of it is critical";
    const auto& importance = operation.importance[abandoned.peer];
    // It may have been cut anew when the peer was established: a block is as important as any that it overlaps.
    const std::uint32_t old_bytes = operation.block_bytes[abandoned.peer];
    for (const auto& [first, end] : ranges)
        for (std::uint32_t old = first / old_bytes; old * old_bytes < end; ++old)
            if (importance[old] == wire::importance_critical)
                return "bytes " + std::to_string(first) + " to " + std::to_string(end) + " are critical";
    const std::uint32_t budget =
        wire::budget_bytes(abandoned.message_bytes, wire::encode_budget(rules.loss_ratio));
    if (abandoned.abandoned_bytes <= budget) return "";
    // A deadline counts from the first packet that comes, so at the earliest from the start.
    if (rules.deadline > Duration{0} && operation.over >= operation.started + rules.deadline) return "";
    return std::to_string(abandoned.abandoned_bytes) + " bytes, but its budget is " + std::to_string(budget);
}

std::string LossJudge::judge(std::vector<RankMemory> contents) const {
    if (std::string wrong = judge_ends(); !wrong.empty()) return wrong;
    if (plan_.is_virtual) return "";
    Losses losses;
    losses.rescale = plan_.loss->rescale;
    for (const auto& rank : ranks_)
        if (rank) losses.missing.insert(rank->missing.begin(), rank->missing.end());
    std::vector<RankMemory> wanted = contents;
    run_slowly(*plan_.set, plan_.type, plan_.op, plan_.average_over, wanted, losses);
    if (std::string wrong = judge_results(wanted); !wrong.empty()) return wrong;
    return judge_mass(contents);
}

std::string LossJudge::judge_ends() const {
    for (std::uint32_t from = 0; from < ranks_.size(); ++from) {
        for (std::uint32_t to = 0; to < ranks_.size(); ++to) {
            if (from == to || !ranks_[from] || !ranks_[to]) continue;
            const auto of_pair = [&](const std::map<Message, Ranges>& all) {
                std::map<Message, Ranges> out;
                for (const auto& [message, ranges] : all)
                    if (std::get<0>(message) == from && std::get<1>(message) == to) out[message] = ranges;
                return out;
            };
            if (of_pair(ranks_[from]->sent) != of_pair(ranks_[to]->missing))
                return words(from, to) + ": sender and receiver do not name the same blocks";
        }
    }
    return "";
}

std::string LossJudge::judge_results(const std::vector<RankMemory>& wanted) const {
    std::map<std::uint32_t, std::pair<std::uint32_t, const std::vector<std::uint8_t>*>> others;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        if (!ranks_[rank]) continue;
        for (std::size_t i = 0; i < ranks_[rank]->output.size(); ++i) {
            const std::vector<std::uint8_t>& got = ranks_[rank]->output[i];
            const std::uint32_t part = plan_.set->ranks[rank].output_parts[i];
            const auto differs = [&](const std::vector<std::uint8_t>& want, const std::string& what) {
                const auto at = std::mismatch(want.begin(), want.end(), got.begin()).second - got.begin();
                return "rank " + std::to_string(rank) + ", part " + std::to_string(part) + ": is not " + what +
                       " from byte " + std::to_string(at) + " of " + std::to_string(got.size()) + " on";
            };
            const auto& [first, same] = *others.try_emplace(part, rank, &got).first;
            if (*same.second != got) return differs(*same.second, "that of rank " + std::to_string(same.first));
            if (ranks_[owners_[part]] && wanted[rank].output[i] != got)
                return differs(wanted[rank].output[i], "the sum of what came");
        }
    }
    return "";
}

std::string LossJudge::judge_mass(const std::vector<RankMemory>& before) const {
    if (std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return !rank; })) return "";
    for (std::uint32_t part = 0; part < plan_.set->parts; ++part)
        if (std::string wrong = judge_part(part, before); !wrong.empty())
            return "mass of part " + std::to_string(part) + ", " + wrong;
    return "";
}

// The input chunk of a rank that holds its contribution to a part.
std::uint32_t LossJudge::input_of(std::uint32_t rank, std::uint32_t part) const {
    const auto& parts = plan_.set->ranks[rank].input_parts;
    return static_cast<std::uint32_t>(std::find(parts.begin(), parts.end(), part) - parts.begin());
}

std::string LossJudge::judge_part(std::uint32_t part, const std::vector<RankMemory>& before) const {
    const bool real = plan_.type == DataType::f32 || plan_.type == DataType::f64;
    const bool half = plan_.type == DataType::f16 || plan_.type == DataType::bf16;
    if (half || plan_.type == DataType::boolean || (!real && plan_.average_over > 1)) return "";
    const std::uint32_t owner = owners_[part];
    const std::uint32_t count = plan_.set->world_size();
    const auto& parts = plan_.set->ranks[owner].output_parts;
    const auto& applied =
        ranks_[owner]
            ->output[static_cast<std::size_t>(std::find(parts.begin(), parts.end(), part) - parts.begin())];
    const auto width = static_cast<std::uint32_t>(element_bytes(plan_.type));
    std::vector<Ranges> given_up(count);  // by rank, as it says itself
    for (std::uint32_t rank = 0; rank < count; ++rank)
        for (const auto& [message, ranges] : ranks_[rank]->sent)
            if (std::get<1>(message) == owner) given_up[rank] = ranges;
    std::vector<std::size_t> next(count);  // first range that is not behind
    for (std::uint32_t at = 0; at < applied.size(); at += width) {
        double sum = 0, magnitude = 0, largest = 0;
        std::uint64_t whole = 0;
        std::uint32_t came = 0;
        for (std::uint32_t rank = 0; rank < count; ++rank) {
            const std::uint8_t* value = before[rank].input[input_of(rank, part)].data() + at;
            if (real) largest = std::max(largest, std::fabs(floating(plan_.type, value)));
            if (real && std::isnan(floating(plan_.type, value))) largest = INFINITY;
            while (next[rank] < given_up[rank].size() && given_up[rank][next[rank]].second <= at) ++next[rank];
            if (next[rank] < given_up[rank].size() && given_up[rank][next[rank]].first <= at) continue;
            ++came;
            if (real) {
                sum += floating(plan_.type, value);
                magnitude += std::fabs(floating(plan_.type, value));
            } else {
                whole += integer(width, value);
            }
        }
        const std::string where = "byte " + std::to_string(at) + ": ";
        if (!real) {
            const std::uint64_t mask = width == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * width) - 1;
            if ((whole & mask) != integer(width, applied.data() + at))
                return where + "is not the sum of what came";
            continue;
        }
        if (largest > largest_judged) continue;
        const double divisor = plan_.average_over > 1 ? (plan_.loss->rescale ? came : plan_.average_over) : 1;
        const double factor =
            plan_.loss->rescale && plan_.average_over == 0 ? static_cast<double>(count) / came : 1;
        const double got = floating(plan_.type, applied.data() + at) * divisor / factor;
        if (!(std::fabs(got - sum) <= mass_tolerance * magnitude + smallest_judged))
            return where + std::to_string(got) + " was applied, " + std::to_string(sum) + " came";
    }
    return "";
}

}  // namespace dlcp::test

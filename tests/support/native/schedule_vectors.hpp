// Reads tests/vectors/schedules.txt: the schedules that Python builds, for every rank, ready to run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/native/schedule_set.hpp"
#include "support/native/vectors.hpp"

namespace dlcp::test {

// One rank's line, word by word.
class RankPlanReader {
public:
    explicit RankPlanReader(const std::string& text) : text_(text) {}

    RankPlan read(std::uint32_t world_size, std::uint32_t rank) {
        RankPlan plan;
        plan.input_parts = numbers();
        plan.output_parts = numbers();
        if (!skip_none()) {
            const std::uint32_t input = number();
            expect('=');
            plan.in_place = {input, number()};
        }
        expect(' ');
        std::vector<Chunk> scratch;
        if (!skip_none()) {
            do scratch.push_back(chunk());
            while (taken(','));
        }
        expect(' ');
        std::vector<ScheduleOp> ops;
        if (!skip_none()) {
            do ops.push_back(operation());
            while (taken(';'));
        }
        if (at_ != text_.size()) wrong();
        plan.schedule = std::make_shared<const Schedule>(
            world_size, rank, static_cast<std::uint32_t>(plan.input_parts.size()),
            static_cast<std::uint32_t>(plan.output_parts.size()), std::move(scratch), std::move(ops));
        return plan;
    }

private:
    [[noreturn]] void wrong() const {
        throw std::runtime_error("schedules.txt: cannot be read at column " + std::to_string(at_) + ": " + text_);
    }
    bool taken(char what) {
        if (at_ >= text_.size() || text_[at_] != what) return false;
        ++at_;
        return true;
    }
    void expect(char what) {
        if (!taken(what)) wrong();
    }
    bool skip_none() { return taken('-'); }
    std::uint32_t number() {
        const std::size_t first = at_;
        std::uint32_t value = 0;
        for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
            value = value * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
        if (at_ == first) wrong();
        return value;
    }
    // Up to the space behind them.
    std::vector<std::uint32_t> numbers() {
        std::vector<std::uint32_t> out;
        if (!skip_none()) {
            do out.push_back(number());
            while (taken(','));
        }
        expect(' ');
        return out;
    }
    Chunk chunk() {
        const Space space = taken('i') ? Space::input : taken('o') ? Space::output : Space::scratch;
        if (space == Space::scratch) expect('x');
        return {space, number()};
    }
    ScheduleOp operation() {
        using Kind = ScheduleOp::Kind;
        ScheduleOp op;
        op.kind = taken('s') ? Kind::send : taken('r') ? Kind::receive : Kind::combine;
        if (op.kind == Kind::combine) {
            expect('c');
        } else {
            op.peer = number();
            expect('.');
            op.message = number();
        }
        if (op.kind != Kind::combine) expect('=');
        if (op.kind == Kind::send) {
            op.operands.push_back(chunk());
            op.lossy = taken('?');
            return op;
        }
        op.target = chunk();
        if (op.kind == Kind::combine) {
            expect('=');
            op.operands.push_back(chunk());
        }
        while (taken('+')) op.operands.push_back(chunk());
        op.final = taken('!');
        op.lossy = op.kind == Kind::receive && taken('?');
        return op;
    }

    const std::string& text_;
    std::size_t at_ = 0;
};

inline std::vector<ScheduleSet> load_schedules() {
    std::vector<ScheduleSet> sets;
    for (const vectors::Record& record : vectors::load("schedules.txt")) {
        ScheduleSet& set = sets.emplace_back();
        set.name = record.text("name");
        set.collective = record.text("collective");
        set.algorithm = record.text("algorithm");
        set.root = static_cast<std::uint32_t>(record.number("root"));
        const auto world_size = static_cast<std::uint32_t>(record.number("world_size"));
        const std::vector<std::string> lines = record.all("rank");
        if (lines.size() != world_size) throw std::runtime_error(set.name + ": not one line per rank");
        for (std::uint32_t rank = 0; rank < world_size; ++rank) {
            set.ranks.push_back(RankPlanReader(lines[rank]).read(world_size, rank));
            for (const auto* parts : {&set.ranks.back().input_parts, &set.ranks.back().output_parts})
                for (const std::uint32_t part : *parts) set.parts = std::max(set.parts, part + 1);
        }
    }
    return sets;
}

}  // namespace dlcp::test

// From hyperparameters, doubles as in Python, to the factors of a step, floats as torch makes them; and the states of an
// optimizer. The loops depend on the processor (optimizer_kernels.hpp).
#include "collective/optimizer.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "collective/kernels.hpp"
#include "collective/standard_modes.hpp"

namespace dlcp {
namespace {

static_assert(optimizer_states_max == update_states_max);

float rounded(double value) { return static_cast<float>(value); }

// Of a power of two, as counts of ranks often are, the reciprocal is exact.
UpdateWork work_of(const OptimizerMemory& memory, bool maximize) {
    assert(!memory.contributions.empty() && memory.divisor != 0);
    const bool has_reciprocal = (memory.divisor & (memory.divisor - 1)) == 0;
    const float sign = maximize ? -1.0f : 1.0f;
    UpdateWork work{.contributions = memory.contributions.data(),
                    .contribution_count = memory.contributions.size(),
                    .factor = has_reciprocal ? sign / static_cast<float>(memory.divisor) : 0,
                    .divisor = has_reciprocal ? 0 : sign * static_cast<float>(memory.divisor),
                    .count = memory.count,
                    .weights = memory.weights,
                    .next_weights = memory.next_weights,
                    .states = {}};
    std::ranges::copy(memory.states, work.states);
    return work;
}

void apply_rule(const Sgd& rule, const OptimizerStep& step, const OptimizerMemory& memory, const SquareRoot&,
                const OptimizerKernels& kernels) {
    const UpdateWork work = work_of(memory, rule.maximize);
    const SgdFactors factors{.decay = rounded(rule.weight_decay),
                             .momentum = rounded(rule.momentum),
                             .gradient = rounded(1 - rule.dampening),
                             .learning_rate = rounded(-rule.learning_rate)};
    const SgdForm form = rule.momentum == 0 ? SgdForm::plain
                         : step.step == 1   ? (rule.nesterov ? SgdForm::first_nesterov : SgdForm::first)
                                            : (rule.nesterov ? SgdForm::next_nesterov : SgdForm::next);
    in_standard_modes(kernels.sgd[rule.weight_decay != 0][static_cast<std::size_t>(form)], &work, &factors);
}

void apply_rule(const Adam& rule, const OptimizerStep& step, const OptimizerMemory& memory, const SquareRoot& root,
                const OptimizerKernels& kernels) {
    const UpdateWork work = work_of(memory, rule.maximize);
    const float lerp = rounded(1 - rule.beta1);
    const bool lerp_from_mean = std::fabs(lerp) < 0.5f;
    const AdamDecay decay = rule.weight_decay == 0 ? AdamDecay::none
                            : rule.decoupled       ? AdamDecay::decoupled
                                                   : AdamDecay::coupled;
    const AdamFactors factors{
        .decay = rounded(rule.decoupled ? 1 - rule.learning_rate * rule.weight_decay : rule.weight_decay),
        .lerp = lerp_from_mean ? lerp : lerp - 1,
        .lerp_from_mean = lerp_from_mean,
        .second = rounded(rule.beta2),
        .square = rounded(1 - rule.beta2),
        .correction = rounded(step.correction2_root),
        .epsilon = rounded(rule.epsilon),
        .step_size = rounded(-(rule.learning_rate / step.correction1)),
        .root = root.call,
        .root_context = root.context};
    const auto& table = root.call == nullptr ? kernels.adam : kernels.adam_with_root;
    in_standard_modes(table[static_cast<std::size_t>(decay)][rule.amsgrad], &work, &factors);
}

}  // namespace

std::size_t optimizer_states(const OptimizerRule& rule) {
    if (const auto* sgd = std::get_if<Sgd>(&rule)) return sgd->momentum == 0 ? 0 : 1;
    return std::get<Adam>(rule).amsgrad ? 3 : 2;
}

OptimizerStep::OptimizerStep(const OptimizerRule& its_rule, std::uint64_t number) : rule(its_rule), step(number) {
    assert(step != 0);
    if (const auto* adam = std::get_if<Adam>(&rule)) {
        const auto steps = static_cast<double>(step);
        correction1 = 1 - std::pow(adam->beta1, steps);
        correction2_root = std::pow(1 - std::pow(adam->beta2, steps), 0.5);  // not sqrt: Python's ** is pow
    }
}

void apply(const OptimizerStep& step, const OptimizerMemory& memory, const SquareRoot& root, Variant variant) {
    std::visit([&](const auto& each) { apply_rule(each, step, memory, root, kernels_of(variant).optimizer); },
               step.rule);
}

Optimizer::Optimizer(const OptimizerRule& rule, std::size_t count)
    : rule_(rule), count_(count), states_(std::make_unique<float[]>(optimizer_states(rule) * count)) {}

bool Optimizer::set_rule(const OptimizerRule& rule) {
    if (rule.index() != rule_.index() || optimizer_states(rule) != optimizer_states(rule_)) return false;
    rule_ = rule;
    return true;
}

void Optimizer::step(std::span<const float* const> contributions, std::uint32_t divisor, const float* weights,
                     float* next_weights, const SquareRoot& root, Variant variant) {
    OptimizerMemory memory{.contributions = contributions,
                           .divisor = divisor,
                           .count = count_,
                           .weights = weights,
                           .next_weights = next_weights};
    for (std::size_t i = 0; i < states(); ++i) memory.states[i] = state(i).data();
    apply(OptimizerStep(rule_, ++steps_), memory, root, variant);
}

}  // namespace dlcp

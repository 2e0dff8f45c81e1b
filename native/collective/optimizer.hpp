// Optimizers fused with the sum: contributions are added, averaged and applied to weights and states in one pass, in
// which each of them is read once (PHub, SoCC 2018, arXiv 1805.07891).
//
// Invariant: weights and states get the bits that torch.optim leaves with foreach=False and fused=False on a CPU with
// AVX2 or AVX-512. torch's add, addcmul and lerp are fused multiply-adds there. So they are here on every processor, and
// every variant gives the same bits (but for which NaN a NaN is). Hyperparameters are doubles as in Python, and become
// floats where torch makes them floats. Sums are in the order of the contributions.
//
// Square roots are rounded to nearest. torch leaves them to MKL where it was built with it, which rounds every fifth to
// the neighbour on AMD's processors: a caller who wants torch's bits of Adam gives its function (dlcp/torch/vml.py).
//
// LARS needs norms of whole layers, and a hub holds keys and no layers: it is not here (dlcp/torch/trust_ratio.py).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "collective/reduce.hpp"

namespace dlcp {

// torch.optim.SGD. With a momentum the state is one array, the buffer.
struct Sgd {
    double learning_rate = 0;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;
    bool nesterov = false;
    bool maximize = false;
};

// torch.optim.Adam, and AdamW where weight decay is decoupled. The states are exp_avg, exp_avg_sq and, with amsgrad,
// max_exp_avg_sq.
struct Adam {
    double learning_rate = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;
    bool decoupled = false;  // AdamW
    bool amsgrad = false;
    bool maximize = false;
};

// The hyperparameters of one step.
using OptimizerRule = std::variant<Sgd, Adam>;

inline constexpr std::size_t optimizer_states_max = 3;
// Arrays of the state, each as long as the weights; they begin as zeros.
std::size_t optimizer_states(const OptimizerRule& rule);

// out[i] = sqrt(in[i]), of at most some hundred elements a call. `call` is nullptr: rounded to nearest.
struct SquareRoot {
    void (*call)(const void* context, const float* in, float* out, std::size_t count) = nullptr;
    const void* context = nullptr;
};

// Memory of one step, of `count` floats each, aligned as floats are. The parts do not overlap, but next_weights may be
// weights.
struct OptimizerMemory {
    std::span<const float* const> contributions;  // one at least
    std::uint32_t divisor = 1;                    // of their sum, at least 1: how many gradients it is made of
    std::size_t count = 0;
    const float* weights = nullptr;
    float* next_weights = nullptr;
    std::array<float*, optimizer_states_max> states{};  // as many as optimizer_states() says
};

// A step of all blocks: what they have in common is computed once, since Adam's powers take as long as a short block.
struct OptimizerStep {
    OptimizerStep(const OptimizerRule& rule, std::uint64_t step);  // the first step is 1

    OptimizerRule rule;
    std::uint64_t step;
    // Of Adam: 1 - beta1^step, and the root of 1 - beta2^step.
    double correction1 = 1;
    double correction2_root = 1;
};

// Makes a step. `variant` is one of available_variants().
void apply(const OptimizerStep& step, const OptimizerMemory& memory, const SquareRoot& root, Variant variant);

// States and steps of some weights, such as a key's. One thread at a time.
class Optimizer {
public:
    // `count`: of weights.
    Optimizer(const OptimizerRule& rule, std::size_t count);

    // Other hyperparameters from the next step on. False: of another kind, or with other states; nothing changed.
    bool set_rule(const OptimizerRule& rule);
    const OptimizerRule& rule() const { return rule_; }

    // `next_weights` may be `weights`.
    void step(std::span<const float* const> contributions, std::uint32_t divisor, const float* weights,
              float* next_weights, const SquareRoot& root = {}, Variant variant = available_variants().back());

    // Steps made. Whoever sets it has set the states too, as after a restart.
    std::uint64_t steps() const { return steps_; }
    void set_steps(std::uint64_t steps) { steps_ = steps; }

    std::size_t count() const { return count_; }
    std::size_t states() const { return optimizer_states(rule_); }
    std::span<float> state(std::size_t index) { return {states_.get() + index * count_, count_}; }

private:
    OptimizerRule rule_;
    std::size_t count_;
    std::uint64_t steps_ = 0;
    std::unique_ptr<float[]> states_;  // array after array
};

}  // namespace dlcp

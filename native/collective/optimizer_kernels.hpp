// The loops of optimizers of each variant as a table; why variants are in files of their own: kernels.hpp. What the
// fields mean: optimizer.hpp. Called in standard modes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlcp {

inline constexpr std::size_t update_states_max = 3;

struct UpdateWork {
    const float* const* contributions;
    std::size_t contribution_count;
    float factor;   // of the sum, if there is no divisor; below 0: maximize
    float divisor;  // 0: none
    std::size_t count;
    const float* weights;
    float* next_weights;
    float* states[update_states_max];
};

struct SgdFactors {
    float decay;
    float momentum;
    float gradient;       // 1 - dampening
    float learning_rate;  // negative
};

enum class SgdForm : std::uint8_t { plain, first, first_nesterov, next, next_nesterov };  // first: of the momentum
inline constexpr std::size_t sgd_forms = 5;

struct AdamFactors {
    float decay;          // coupled: added so many times; decoupled: the weights are multiplied by it
    float lerp;           // the weight of the gradient in the mean, less 1 where it is 1/2 or more
    bool lerp_from_mean;  // lerp is below 1/2
    float second;         // beta2
    float square;         // 1 - beta2
    float correction;     // of the root
    float epsilon;
    float step_size;                                                                    // negative
    void (*root)(const void* context, const float* in, float* out, std::size_t count);  // only of adam_with_root
    const void* root_context;
};

enum class AdamDecay : std::uint8_t { none, coupled, decoupled };
inline constexpr std::size_t adam_decays = 3;

struct OptimizerKernels {
    void (*sgd[2][sgd_forms])(const UpdateWork*, const SgdFactors*) = {};      // without and with decay
    void (*adam[adam_decays][2])(const UpdateWork*, const AdamFactors*) = {};  // without and with amsgrad
    void (*adam_with_root[adam_decays][2])(const UpdateWork*, const AdamFactors*) = {};
};

}  // namespace dlcp

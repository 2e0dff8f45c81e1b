// Steps of optimizers, for the processor that the including file is compiled for. Included by one file per variant only
// (see kernels.hpp). The order of operations is torch's (torch/optim, the functions _single_tensor_*).
#pragma once

#include "collective/optimizer_kernels.hpp"
#include "collective/vector_arithmetic.hpp"

namespace dlcp {
namespace {

using Floats = Vector<float>;
inline constexpr std::size_t float_lanes = lanes_of<float>;

// How far ahead memory is asked for, in floats: processors do not follow as many arrays at once as there are here. On
// Zen 5 without it four contributions take a fifth longer; 512 floats are as good, 144 (PHub's distance) less.
inline constexpr std::size_t fetch_ahead = 256;

inline Floats all(float value) { return Floats{} + value; }

// --- one pass over contributions, weights and states -----------------------------------------------------------

// `fixed`: how many contributions there are; 0: any number.
template <std::size_t fixed>
inline Floats gradient_at(const float* const* contributions, std::size_t count, std::size_t at) {
    Floats sum = load_vector<Floats>(contributions[0] + at);
    for (std::size_t i = 1; i < (fixed != 0 ? fixed : count); ++i)
        sum += load_vector<Floats>(contributions[i] + at);
    return sum;
}

// Elements from `begin` to `end`, which are whole vectors.
template <std::size_t states, std::size_t fixed, class Step>
[[gnu::noinline]] void update_vectors(const UpdateWork& given, std::size_t begin, std::size_t end, Step step) {
    // Copies, which no store through a pointer can change as far as a compiler knows.
    const UpdateWork work = given;
    const float* few[fixed != 0 ? fixed : 1];
    if constexpr (fixed != 0)
        for (std::size_t i = 0; i < fixed; ++i) few[i] = work.contributions[i];
    const float* const* contributions = fixed != 0 ? few : work.contributions;
    const Floats scale = all(work.divisor != 0 ? work.divisor : work.factor);
    const auto pass = [&](auto scaled) {
        for (std::size_t at = begin; at < end; at += float_lanes) {
            const Floats gradient = scaled(gradient_at<fixed>(contributions, work.contribution_count, at));
            for (std::size_t i = 0; i < (fixed != 0 ? fixed : work.contribution_count); ++i)
                __builtin_prefetch(contributions[i] + at + fetch_ahead);
            __builtin_prefetch(work.weights + at + fetch_ahead);
            if constexpr (states != 0)
                for (std::size_t i = 0; i < states; ++i) __builtin_prefetch(work.states[i] + at + fetch_ahead);
            Floats weights = load_vector<Floats>(work.weights + at);
            Floats state[states != 0 ? states : 1];
            if constexpr (states != 0)
                for (std::size_t i = 0; i < states; ++i) state[i] = load_vector<Floats>(work.states[i] + at);
            step(gradient, weights, state, at);
            store_vector(work.next_weights + at, weights);
            if constexpr (states != 0)
                for (std::size_t i = 0; i < states; ++i) store_vector(work.states[i] + at, state[i]);
        }
    };
    if (work.divisor != 0) {
        pass([scale](Floats sum) { return sum / scale; });
    } else {
        pass([scale](Floats sum) { return sum * scale; });
    }
}

// What is left over, fewer elements than a vector has, goes through copies as long as a vector.
template <std::size_t states, class Loop>
inline void update_rest(const UpdateWork& work, std::size_t begin, Loop loop) {
    const std::size_t count = work.count - begin;
    if (count == 0) return;
    float sum[float_lanes] = {};
    float weights[float_lanes] = {};
    float state[update_states_max][float_lanes] = {};
    const float* const contribution = sum;
    for (std::size_t i = 0; i < count; ++i) {
        sum[i] = work.contributions[0][begin + i];
        for (std::size_t k = 1; k < work.contribution_count; ++k) sum[i] += work.contributions[k][begin + i];
    }
    __builtin_memcpy(weights, work.weights + begin, count * sizeof(float));
    UpdateWork rest = work;
    rest.contributions = &contribution;
    rest.contribution_count = 1;
    rest.count = float_lanes;
    rest.weights = rest.next_weights = weights;
    if constexpr (states != 0) {
        for (std::size_t i = 0; i < states; ++i) {
            __builtin_memcpy(state[i], work.states[i] + begin, count * sizeof(float));
            rest.states[i] = state[i];
        }
    }
    loop(rest);
    __builtin_memcpy(work.next_weights + begin, weights, count * sizeof(float));
    if constexpr (states != 0)
        for (std::size_t i = 0; i < states; ++i)
            __builtin_memcpy(work.states[i] + begin, state[i], count * sizeof(float));
}

template <std::size_t states, class Step>
inline void update(const UpdateWork& work, Step step) {
    const std::size_t whole = work.count / float_lanes * float_lanes;
    switch (work.contribution_count) {
        case 1: update_vectors<states, 1>(work, 0, whole, step); break;
        case 2: update_vectors<states, 2>(work, 0, whole, step); break;
        default: update_vectors<states, 0>(work, 0, whole, step);
    }
    update_rest<states>(work, whole,
                        [step](const UpdateWork& rest) { update_vectors<states, 1>(rest, 0, rest.count, step); });
}

// --- SGD -------------------------------------------------------------------------------------------------------

template <bool has_decay, SgdForm form>
[[gnu::noinline]] void sgd(const UpdateWork* work, const SgdFactors* factors) {
    const Floats decay = all(factors->decay);
    const Floats momentum = all(factors->momentum);
    const Floats of_gradient = all(factors->gradient);
    const Floats learning_rate = all(factors->learning_rate);
    constexpr bool has_first = form == SgdForm::first || form == SgdForm::first_nesterov;
    constexpr bool has_nesterov = form == SgdForm::first_nesterov || form == SgdForm::next_nesterov;
    update<form == SgdForm::plain ? 0 : 1>(
        *work, [=](Floats gradient, Floats& weights, Floats* state, std::size_t) {
            if constexpr (has_decay) gradient = fused_multiply_add(weights, decay, gradient);
            if constexpr (form != SgdForm::plain) {
                state[0] = has_first ? gradient : fused_multiply_add(gradient, of_gradient, state[0] * momentum);
                gradient = has_nesterov ? fused_multiply_add(state[0], momentum, gradient) : state[0];
            }
            weights = fused_multiply_add(gradient, learning_rate, weights);
        });
}

// --- Adam ------------------------------------------------------------------------------------------------------

template <AdamDecay has_decay, bool amsgrad>
struct AdamStep {
    static constexpr std::size_t states = amsgrad ? 3 : 2;
    Floats decay, lerp, second, square, correction, epsilon, step_size;
    bool lerp_from_mean;

    explicit AdamStep(const AdamFactors& factors)
        : decay(all(factors.decay)),
          lerp(all(factors.lerp)),
          second(all(factors.second)),
          square(all(factors.square)),
          correction(all(factors.correction)),
          epsilon(all(factors.epsilon)),
          step_size(all(factors.step_size)),
          lerp_from_mean(factors.lerp_from_mean) {}

    // Changes the states. Returns what the root is taken of.
    Floats moments(Floats gradient, Floats weights, Floats* state) const {
        if constexpr (has_decay == AdamDecay::coupled) gradient = fused_multiply_add(weights, decay, gradient);
        state[0] = fused_multiply_add(gradient - state[0], lerp, lerp_from_mean ? state[0] : gradient);
        state[1] = fused_multiply_add(square * gradient, gradient, state[1] * second);
        if constexpr (!amsgrad) return state[1];
        state[2] = maximum(state[2], state[1]);
        return state[2];
    }
    Floats moved(Floats weights, Floats mean, Floats root) const {
        if constexpr (has_decay == AdamDecay::decoupled) weights *= decay;
        return weights + step_size * mean / (root / correction + epsilon);
    }
};

template <AdamDecay has_decay, bool amsgrad>
[[gnu::noinline]] void adam(const UpdateWork* work, const AdamFactors* factors) {
    using Step = AdamStep<has_decay, amsgrad>;
    const Step step(*factors);
    update<Step::states>(*work, [step](Floats gradient, Floats& weights, Floats* state, std::size_t) {
        const Floats root = square_root(step.moments(gradient, weights, state));
        weights = step.moved(weights, state[0], root);
    });
}

// Elements for which roots are asked at once: few enough that what is read twice is still in the first-level cache.
inline constexpr std::size_t root_tile = 512;

// The first pass leaves the weights as they are, or copies them to where the second one changes them.
template <AdamDecay has_decay, bool amsgrad>
inline void adam_tile(const UpdateWork& work, std::size_t begin, std::size_t end, const AdamFactors& factors) {
    using Step = AdamStep<has_decay, amsgrad>;
    const Step step(factors);
    alignas(64) float squares[root_tile];
    alignas(64) float roots[root_tile];
    float* const to = squares;
    update_vectors<Step::states, 0>(
        work, begin, end, [step, to, begin](Floats gradient, Floats& weights, Floats* state, std::size_t at) {
            store_vector(to + (at - begin), step.moments(gradient, weights, state));
        });
    factors.root(factors.root_context, squares, roots, end - begin);
    for (std::size_t at = begin; at < end; at += float_lanes) {
        const Floats weights = load_vector<Floats>(work.next_weights + at);
        const Floats mean = load_vector<Floats>(work.states[0] + at);
        const Floats root = load_vector<Floats>(roots + (at - begin));
        store_vector(work.next_weights + at, step.moved(weights, mean, root));
    }
}

template <AdamDecay has_decay, bool amsgrad>
[[gnu::noinline]] void adam_with_root(const UpdateWork* work, const AdamFactors* factors) {
    constexpr std::size_t states = AdamStep<has_decay, amsgrad>::states;
    const std::size_t whole = work->count / float_lanes * float_lanes;
    for (std::size_t begin = 0; begin < whole; begin += root_tile) {
        const std::size_t end = whole - begin < root_tile ? whole : begin + root_tile;
        adam_tile<has_decay, amsgrad>(*work, begin, end, *factors);
    }
    update_rest<states>(*work, whole, [factors](const UpdateWork& rest) {
        adam_tile<has_decay, amsgrad>(rest, 0, rest.count, *factors);
    });
}

// --- the table -------------------------------------------------------------------------------------------------

template <bool has_decay, std::size_t... form>
constexpr void add_sgd(OptimizerKernels& kernels, std::index_sequence<form...>) {
    ((kernels.sgd[has_decay][form] = sgd<has_decay, static_cast<SgdForm>(form)>), ...);
}

template <std::size_t... decay>
constexpr void add_adam(OptimizerKernels& kernels, std::index_sequence<decay...>) {
    ((kernels.adam[decay][false] = adam<static_cast<AdamDecay>(decay), false>), ...);
    ((kernels.adam[decay][true] = adam<static_cast<AdamDecay>(decay), true>), ...);
    ((kernels.adam_with_root[decay][false] = adam_with_root<static_cast<AdamDecay>(decay), false>), ...);
    ((kernels.adam_with_root[decay][true] = adam_with_root<static_cast<AdamDecay>(decay), true>), ...);
}

constexpr OptimizerKernels make_optimizer_kernels() {
    OptimizerKernels kernels;
    add_sgd<false>(kernels, std::make_index_sequence<sgd_forms>());
    add_sgd<true>(kernels, std::make_index_sequence<sgd_forms>());
    add_adam(kernels, std::make_index_sequence<adam_decays>());
    return kernels;
}

}  // namespace
}  // namespace dlcp

// Optimizers fused with the sum (native/collective/optimizer.hpp): their hyperparameters, and the states of some weights.
//
// Addresses are trusted, as in reduce.cpp; what can be seen to be wrong raises ValueError. `variant` is for tests and
// benchmarks. The GIL is released.
#include "collective/optimizer.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bind/bind.hpp"
#include "bind/kernel.hpp"
#include "bind/square_root.hpp"

namespace dlcp::bind {
namespace {

using Address = std::uintptr_t;
using State = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

void check_number(const char* name, double value, double low, double high) {
    if (!(value >= low && value <= high))
        raise(std::string(name) + " is " + std::to_string(value) + "; accepted: " + std::to_string(low) + " to " +
              std::to_string(high));
}

constexpr double large = 3e38;  // what a float holds

void step(Optimizer& optimizer, const std::vector<Address>& contributions, Address weights,
          std::optional<Address> next_weights, std::int64_t divisor, std::optional<Address> vml_square_root,
          const std::optional<std::string>& variant) {
    if (contributions.empty()) raise("no contributions; accepted: at least one");
    if (divisor < 1 || divisor > UINT32_MAX)
        raise("divisor " + std::to_string(divisor) + "; accepted: 1 to " + std::to_string(UINT32_MAX));
    std::vector<const float*> addresses;
    for (const Address address : contributions) addresses.push_back(memory_at<const float>(address));
    const Variant chosen = find_variant(variant);
    const SquareRoot root = vml_square_root ? vml_root(*vml_square_root) : SquareRoot{};
    const nb::gil_scoped_release release;
    optimizer.step(addresses, static_cast<std::uint32_t>(divisor), memory_at<const float>(weights),
                   memory_at<float>(next_weights.value_or(weights)), root, chosen);
}

// Views of its memory, which keep it.
nb::list states(nb::handle self) {
    auto& optimizer = nb::cast<Optimizer&>(self);
    nb::list views;
    for (std::size_t i = 0; i < optimizer.states(); ++i)
        views.append(State(optimizer.state(i).data(), {optimizer.count()}, self).cast(nb::rv_policy::reference));
    return views;
}

void bind_rules(nb::module_& m) {
    nb::class_<Sgd>(m, "Sgd", "Hyperparameters of torch.optim.SGD.")
        .def(
            "__init__",
            [](Sgd* self, double learning_rate, double momentum, double dampening, double weight_decay,
               bool nesterov, bool maximize) {
                check_number("learning_rate", learning_rate, 0, large);
                check_number("momentum", momentum, 0, large);
                check_number("dampening", dampening, -large, large);
                check_number("weight_decay", weight_decay, 0, large);
                if (nesterov && (momentum <= 0 || dampening != 0))
                    raise("nesterov without a momentum, or with dampening; accepted: a momentum alone");
                new (self) Sgd{.learning_rate = learning_rate,
                               .momentum = momentum,
                               .dampening = dampening,
                               .weight_decay = weight_decay,
                               .nesterov = nesterov,
                               .maximize = maximize};
            },
            nb::arg("learning_rate"), nb::kw_only(), nb::arg("momentum") = 0.0, nb::arg("dampening") = 0.0,
            nb::arg("weight_decay") = 0.0, nb::arg("nesterov") = false, nb::arg("maximize") = false);
    nb::class_<Adam>(m, "Adam", "Hyperparameters of torch.optim.Adam; decoupled: of AdamW.")
        .def(
            "__init__",
            [](Adam* self, double learning_rate, double beta1, double beta2, double epsilon, double weight_decay,
               bool decoupled, bool amsgrad, bool maximize) {
                check_number("learning_rate", learning_rate, 0, large);
                check_number("beta1", beta1, 0, std::nextafter(1.0, 0.0));
                check_number("beta2", beta2, 0, std::nextafter(1.0, 0.0));
                check_number("epsilon", epsilon, 0, large);
                check_number("weight_decay", weight_decay, 0, large);
                new (self) Adam{.learning_rate = learning_rate,
                                .beta1 = beta1,
                                .beta2 = beta2,
                                .epsilon = epsilon,
                                .weight_decay = weight_decay,
                                .decoupled = decoupled,
                                .amsgrad = amsgrad,
                                .maximize = maximize};
            },
            nb::arg("learning_rate"), nb::kw_only(), nb::arg("beta1") = 0.9, nb::arg("beta2") = 0.999,
            nb::arg("epsilon") = 1e-8, nb::arg("weight_decay") = 0.0, nb::arg("decoupled") = false,
            nb::arg("amsgrad") = false, nb::arg("maximize") = false);
}

}  // namespace

void bind_optimizer(nb::module_& m) {
    bind_rules(m);
    nb::class_<Optimizer>(m, "Optimizer", "States and steps of some weights (native/collective/optimizer.hpp).")
        .def(nb::init<const OptimizerRule&, std::size_t>(), nb::arg("rule"), nb::arg("count"))
        .def("step", &step, nb::arg("contribution_addresses"), nb::arg("weights_address"),
             nb::arg("next_weights_address") = nb::none(), nb::kw_only(), nb::arg("divisor") = 1,
             nb::arg("vml_square_root_address") = nb::none(), nb::arg("variant") = nb::none(),
             "Adds contributions, divides the sum and makes a step. next_weights: where results go; None: to "
             "weights.")
        .def(
            "set_rule",
            [](Optimizer& self, const OptimizerRule& rule) {
                if (!self.set_rule(rule))
                    raise(
                        "the rule is of another kind, or has other states; accepted: the kind that it was made "
                        "of");
            },
            nb::arg("rule"), "Other hyperparameters from the next step on.")
        .def_prop_ro("count", &Optimizer::count)
        .def_prop_rw("steps", &Optimizer::steps, &Optimizer::set_steps, "Steps made.")
        .def_prop_ro("states", &states, "Arrays of its state, float32 [count] each: its memory, not copies.");
}

}  // namespace dlcp::bind

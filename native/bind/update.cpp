// An optimizer on the sums of a collective: what a hub's core gives with its command (native/collective/command.hpp).
//
// Addresses are trusted, as in reduce.cpp; what can be seen to be wrong raises ValueError.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind/bind.hpp"
#include "bind/kernel.hpp"
#include "bind/square_root.hpp"
#include "collective/command.hpp"

namespace dlcp::bind {
namespace {

using Addresses = std::vector<std::uintptr_t>;

UpdateRules rules_of(const OptimizerRule& rule, std::uint64_t step, std::uint32_t divisor,
                     const Addresses& weights, const std::vector<Addresses>& states,
                     std::optional<std::uintptr_t> vml_square_root) {
    if (states.size() != optimizer_states(rule))
        raise("states are " + std::to_string(states.size()) +
              " lists; accepted: " + std::to_string(optimizer_states(rule)));
    UpdateRules update{.rule = rule, .step = step, .divisor = divisor, .root = {}, .chunks = {}};
    if (vml_square_root) update.root = vml_root(*vml_square_root);
    update.chunks.resize(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i)
        update.chunks[i].weights = reinterpret_cast<float*>(weights[i]);
    for (std::size_t state = 0; state < states.size(); ++state) {
        if (states[state].size() != weights.size())
            raise("state " + std::to_string(state) + " is of " + std::to_string(states[state].size()) +
                  " chunks; accepted: " + std::to_string(weights.size()));
        for (std::size_t i = 0; i < weights.size(); ++i)
            update.chunks[i].states[state] = reinterpret_cast<float*>(states[state][i]);
    }
    return update;
}

}  // namespace

void bind_update(nb::module_& m) {
    nb::class_<UpdateRules>(m, "UpdateRules", "An optimizer on sums (native/collective/command.hpp).")
        .def(
            "__init__",
            [](UpdateRules* self, const OptimizerRule& rule, std::uint64_t step, std::uint32_t divisor,
               const Addresses& weights, const std::vector<Addresses>& states,
               std::optional<std::uintptr_t> vml_square_root) {
                new (self) UpdateRules(rules_of(rule, step, divisor, weights, states, vml_square_root));
            },
            nb::arg("rule"), nb::arg("step"), nb::arg("divisor"), nb::arg("weight_addresses"),
            nb::arg("state_addresses"), nb::arg("vml_square_root_address").none() = nb::none());
    m.def("optimizer_states", &optimizer_states, nb::arg("rule"),
          "How many arrays of state an optimizer keeps, each as long as the weights.");
}

}  // namespace dlcp::bind

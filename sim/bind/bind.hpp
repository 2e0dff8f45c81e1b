// What the parts of the module `dlcp_sim._core` share. Each part exposes one thing.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "sim/core/simulation.hpp"

namespace dlcp::sim::bind {

namespace nb = nanobind;

// A new NumPy array of these values, with `shape` (its product is their count).
template <class T>
nb::ndarray<nb::numpy, T> array(std::vector<T> values, std::vector<std::size_t> shape = {}) {
    if (shape.empty()) shape.push_back(values.size());
    auto owner = std::make_unique<std::vector<T>>(std::move(values));
    T* data = owner->data();
    nb::capsule capsule(owner.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), capsule);
}

void bind_fabric(nb::module_& module);
void bind_simulation(nb::module_& module);
// Collectives of the shipping executor, and payload that exists.
void bind_cosimulation(nb::module_& module);

}  // namespace dlcp::sim::bind

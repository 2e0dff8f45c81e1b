// What the parts of the module `dlcp._native` share. Each part exposes one thing.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>

namespace dlcp::bind {

namespace nb = nanobind;

// An argument that is not usable as memory for a message: raised under the kind "buffer".
struct BufferError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void bind_errors(nb::module_& module);
void bind_options(nb::module_& module);
void bind_host(nb::module_& module);
void bind_wire(nb::module_& module);
void bind_protection(nb::module_& module);
void bind_reduce(nb::module_& module);
void bind_gradient(nb::module_& module);
void bind_codec(nb::module_& module);
void bind_select(nb::module_& module);
void bind_optimizer(nb::module_& module);
void bind_update(nb::module_& module);
void bind_value_runs(nb::module_& module);
void bind_aggregation(nb::module_& module);
void bind_softswitch(nb::module_& module);
void bind_tensor(nb::module_& module);

}  // namespace dlcp::bind

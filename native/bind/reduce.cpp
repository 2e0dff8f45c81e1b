// Types, operations and the kernels that combine, average and multiply elements, on raw memory.
//
// Addresses and counts are trusted: the caller owns the memory. What can be seen to be wrong raises ValueError. `variant`
// is for tests and benchmarks; left out, the fastest kernel that the processor can run. The GIL is released.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bind/bind.hpp"
#include "bind/kernel.hpp"
#include "collective/element.hpp"
#include "collective/reduce.hpp"

namespace dlcp::bind {
namespace {

std::vector<std::string> variant_names() {
    std::vector<std::string> names;
    for (const Variant variant : available_variants()) names.emplace_back(name(variant));
    return names;
}

void check_apart(const char* what, std::uintptr_t out, std::uintptr_t in, std::size_t bytes) {
    if (out != in && out < in + bytes && in < out + bytes)
        raise(std::string("the output overlaps ") + what +
              " in part; accepted: the same memory, or apart from it");
}

void reduce(DataType type, ReduceOp op, std::uintptr_t out, std::uintptr_t a, std::uintptr_t b, std::size_t count,
            const std::optional<std::string>& variant) {
    const ReduceFunction kernel = find_reduce(type, op, find_variant(variant));
    if (kernel == nullptr)
        raise(std::string(name(op)) + " is not defined on " + name(type) + "; accepted: sum, product, min, max");
    check_apart("the first operand", out, a, count * element_bytes(type));
    check_apart("the second operand", out, b, count * element_bytes(type));
    const nb::gil_scoped_release release;
    kernel(memory_at(out), memory_at<const void>(a), memory_at<const void>(b), count);
}

void average(DataType type, std::uintptr_t data, std::size_t count, std::int64_t divisor,
             const std::optional<std::string>& variant) {
    const AverageFunction kernel = find_average(type, find_variant(variant));
    if (divisor < 1 || divisor > UINT32_MAX)
        raise("divisor " + std::to_string(divisor) + "; accepted: 1 to " + std::to_string(UINT32_MAX));
    const nb::gil_scoped_release release;
    kernel(memory_at(data), count, static_cast<std::uint32_t>(divisor));
}

void multiply(DataType type, std::uintptr_t out, std::uintptr_t in, std::size_t count, double factor,
              const std::optional<std::string>& variant) {
    const MultiplyFunction kernel = find_multiply(type, find_variant(variant));
    check_apart("the input", out, in, count * element_bytes(type));
    const nb::gil_scoped_release release;
    kernel(memory_at(out), memory_at<const void>(in), count, factor);
}

}  // namespace

void bind_reduce(nb::module_& m) {
    nb::enum_<DataType> type_enum(m, "DataType");
    for (const DataTypeTraits& each : data_type_table) type_enum.value(each.name, each.type);
    nb::enum_<ReduceOp> op_enum(m, "ReduceOp");
    for (const ReduceOpTraits& each : reduce_op_table) op_enum.value(each.name, each.op);
    nb::class_<DataTypeTraits>(m, "DataTypeTraits",
                               "A row of the table of element types (native/collective/element.hpp).")
        .def_ro("type", &DataTypeTraits::type)
        .def_ro("nbytes", &DataTypeTraits::bytes)
        .def_ro("floating", &DataTypeTraits::floating)
        .def_ro("torch_name", &DataTypeTraits::torch_name)
        .def_ro("recorder_name", &DataTypeTraits::recorder_name);
    nb::list table;
    for (const DataTypeTraits& each : data_type_table) table.append(nb::cast(each));
    m.attr("DATA_TYPES") = nb::tuple(table);

    m.def("reduce_variants", &variant_names, "The kernels' variants that run on this machine, the fastest last.");
    m.def("reduce", &reduce, nb::arg("type"), nb::arg("op"), nb::arg("out_address"), nb::arg("a_address"),
          nb::arg("b_address"), nb::arg("count"), nb::kw_only(), nb::arg("variant") = nb::none(),
          "out[i] = a[i] op b[i]; out may be a or b.");
    m.def("average", &average, nb::arg("type"), nb::arg("address"), nb::arg("count"), nb::arg("divisor"),
          nb::kw_only(), nb::arg("variant") = nb::none(), "data[i] /= divisor.");
    m.def("multiply", &multiply, nb::arg("type"), nb::arg("out_address"), nb::arg("in_address"), nb::arg("count"),
          nb::arg("factor"), nb::kw_only(), nb::arg("variant") = nb::none(),
          "out[i] = in[i] * factor; out may be in.");
}

}  // namespace dlcp::bind

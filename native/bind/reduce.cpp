// Element types and reduction kernels for Python, on raw addresses: what a collective computes, for tests and for
// factors that are applied before a sum.
#include "collective/reduce.hpp"

#include <nanobind/stl/string.h>

#include <string>

#include "bind/bind.hpp"

namespace dlcp::bind {
namespace {

template <class Pointer = void*>
Pointer at(std::uintptr_t address) {
    return reinterpret_cast<Pointer>(address);
}

void reduce(DataType type, ReduceOp op, std::uintptr_t out, std::uintptr_t a, std::uintptr_t b,
            std::size_t count) {
    const ReduceFunction function = find_reduce(type, op);
    if (function == nullptr)
        throw nb::value_error((std::string(name(op)) + " is not defined for " + name(type)).c_str());
    nb::gil_scoped_release release;
    function(at(out), at(a), at(b), count);
}

void average(DataType type, std::uintptr_t address, std::size_t count, std::uint32_t divisor) {
    if (divisor == 0) throw nb::value_error("divisor is 0; accepted: at least 1");
    nb::gil_scoped_release release;
    find_average(type)(at(address), count, divisor);
}

void multiply(DataType type, std::uintptr_t out, std::uintptr_t in, std::size_t count, double factor) {
    nb::gil_scoped_release release;
    find_multiply(type)(at(out), at(in), count, factor);
}

}  // namespace

void bind_reduce(nb::module_& m) {
    nb::enum_<DataType>(m, "DataType")
        .value("f32", DataType::f32)
        .value("f64", DataType::f64)
        .value("f16", DataType::f16)
        .value("bf16", DataType::bf16)
        .value("i8", DataType::i8)
        .value("i16", DataType::i16)
        .value("i32", DataType::i32)
        .value("i64", DataType::i64)
        .value("u8", DataType::u8)
        .value("boolean", DataType::boolean);
    nb::enum_<ReduceOp>(m, "ReduceOp")
        .value("sum", ReduceOp::sum)
        .value("product", ReduceOp::product)
        .value("min", ReduceOp::min)
        .value("max", ReduceOp::max)
        .value("band", ReduceOp::band)
        .value("bor", ReduceOp::bor)
        .value("bxor", ReduceOp::bxor);
    m.def("reduce", &reduce, nb::arg("type"), nb::arg("op"), nb::arg("out_address"), nb::arg("a_address"),
          nb::arg("b_address"), nb::arg("count"));
    m.def("average", &average, nb::arg("type"), nb::arg("address"), nb::arg("count"), nb::arg("divisor"));
    m.def("multiply", &multiply, nb::arg("type"), nb::arg("out_address"), nb::arg("in_address"), nb::arg("count"),
          nb::arg("factor"));
}

}  // namespace dlcp::bind

// Runs of values (native/collective/value_runs.hpp), of f32 and f64.
//
// Addresses and counts are trusted, as in reduce.cpp; what can be seen to be wrong raises ValueError. The GIL is
// released.
#include "collective/value_runs.hpp"

#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <string>

#include "bind/bind.hpp"
#include "bind/kernel.hpp"
#include "collective/element.hpp"

namespace dlcp::bind {
namespace {

using Indices = nb::ndarray<const std::int64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Address = std::uintptr_t;

std::span<const std::int64_t> span_of(const Indices& indices) { return {indices.data(), indices.shape(0)}; }

void check_within(std::span<const std::int64_t> begin, std::span<const std::int64_t> count, std::size_t elements) {
    if (begin.size() != count.size())
        raise(std::to_string(begin.size()) + " begins and " + std::to_string(count.size()) +
              " counts; accepted: one of each per run");
    const auto size = static_cast<std::int64_t>(elements);
    for (std::size_t i = 0; i < begin.size(); ++i)
        if (begin[i] < 0 || count[i] < 0 || begin[i] > size || count[i] > size - begin[i])
            raise("run " + std::to_string(i) + " has " + std::to_string(count[i]) + " elements from " +
                  std::to_string(begin[i]) + " on; accepted: within " + std::to_string(elements));
}

template <class Work>
void with_type(DataType type, const Work& work) {
    if (type == DataType::f32)
        work(float{});
    else if (type == DataType::f64)
        work(double{});
    else
        raise(std::string("runs of ") + name(type) + "; accepted: f32, f64");
}

void gather_runs(DataType type, Address source, std::size_t elements, const Indices& begin, const Indices& count,
                 Address out, std::size_t out_elements) {
    const ValueRuns runs{.begin = span_of(begin), .count = span_of(count)};
    check_within(runs.begin, runs.count, elements);
    std::int64_t sum = 0;
    for (const std::int64_t each : runs.count) sum += each;
    if (static_cast<std::size_t>(sum) != out_elements)
        raise("room for " + std::to_string(out_elements) + " elements; accepted: " + std::to_string(sum));
    with_type(type, [&]<class T>(T) {
        const nb::gil_scoped_release release;
        dlcp::gather_runs(memory_at<const T>(source), runs, memory_at<T>(out));
    });
}

void add_runs(DataType type, Address target, std::size_t elements, const Indices& begin, const Indices& count,
              Address source, std::size_t source_elements, const Indices& at, double factor) {
    const ValueRuns runs{.begin = span_of(begin), .count = span_of(count)};
    check_within(runs.begin, runs.count, elements);
    check_within(span_of(at), runs.count, source_elements);
    with_type(type, [&]<class T>(T) {
        const nb::gil_scoped_release release;
        dlcp::add_runs(memory_at<T>(target), runs, memory_at<const T>(source), span_of(at),
                       static_cast<T>(factor));
    });
}

}  // namespace

void bind_value_runs(nb::module_& m) {
    m.def("gather_runs", &gather_runs, nb::arg("dtype"), nb::arg("source_address"), nb::arg("elements"),
          nb::arg("begin"), nb::arg("count"), nb::arg("out_address"), nb::arg("out_elements"),
          "The runs of f32 or f64 one after the other.");
    m.def("add_runs", &add_runs, nb::arg("dtype"), nb::arg("target_address"), nb::arg("elements"),
          nb::arg("begin"), nb::arg("count"), nb::arg("source_address"), nb::arg("source_elements"), nb::arg("at"),
          nb::arg("factor"),
          "target[run i] += factor * source[as many from at[i] on], f32 or f64; runs are apart.");
}

}  // namespace dlcp::bind

// The selection of the elements of largest magnitude, and how many reach a threshold.
//
// Address and count are trusted, as in reduce.cpp; what can be seen to be wrong raises ValueError. `variant`
// and `sampled` are for tests and benchmarks: they do not change the result. The GIL is released.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <string>

#include "bind/bind.hpp"
#include "bind/kernel.hpp"
#include "collective/select.hpp"

namespace dlcp::bind {
namespace {

using Indices = nb::ndarray<std::int64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

void select_largest(std::uintptr_t address, std::size_t count, const Indices& out, bool sampled,
                    const std::optional<std::string>& variant) {
    const std::size_t k = out.shape(0);
    if (count > select_count_max)
        raise("count is " + std::to_string(count) + "; accepted: 0 to " + std::to_string(select_count_max));
    if (k > count) raise("k is " + std::to_string(k) + "; accepted: 0 up to " + std::to_string(count));
    const Variant chosen = find_variant(variant);
    std::int64_t* const indices = out.data();
    const nb::gil_scoped_release release;
    dlcp::select_largest(memory_at<const void>(address), count, k, indices,
                         sampled ? SelectMethod::sampled : SelectMethod::histogram, chosen);
}

std::size_t count_reaching(std::uintptr_t address, std::size_t count, double threshold,
                           const std::optional<std::string>& variant) {
    const Variant chosen = find_variant(variant);
    const nb::gil_scoped_release release;
    return dlcp::count_reaching(memory_at<const void>(address), count, static_cast<float>(threshold), chosen);
}

}  // namespace

void bind_select(nb::module_& m) {
    m.attr("SELECT_COUNT_MAX") = select_count_max;
    m.def("select_largest", &select_largest, nb::arg("address"), nb::arg("count"), nb::arg("out").noconvert(),
          nb::kw_only(), nb::arg("sampled") = true, nb::arg("variant") = nb::none(),
          "Writes the indices of the f32 of largest magnitude, as many as `out` takes, ascending.");
    m.def("count_reaching", &count_reaching, nb::arg("address"), nb::arg("count"), nb::arg("threshold"),
          nb::kw_only(), nb::arg("variant") = nb::none(), "How many f32 have at least this magnitude.");
}

}  // namespace dlcp::bind

// Coded groups (native/collective/codec.hpp): the table of codecs, the kernels, and the rules of a coded collective.
//
// Addresses are trusted, as in reduce.cpp; what can be seen to be wrong raises ValueError. `variant` is for tests and
// benchmarks. The GIL is released.
#include "collective/codec.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bind/bind.hpp"
#include "bind/kernel.hpp"
#include "collective/command.hpp"

namespace dlcp::bind {
namespace {

using Runs = nb::ndarray<const std::int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;
using Address = std::uintptr_t;

std::vector<CodedRun> runs_of(const Runs& table) {
    std::vector<CodedRun> runs(table.shape(0));
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (table(i, 0) < 0 || table(i, 1) < 0 || table(i, 2) < 0)
            raise("run " + std::to_string(i) + " has " + std::to_string(table(i, 1)) + " values from " +
                  std::to_string(table(i, 0)) + " on, at group " + std::to_string(table(i, 2)) +
                  "; accepted: 0 or more");
        runs[i] = {.begin = static_cast<std::size_t>(table(i, 0)),
                   .count = static_cast<std::size_t>(table(i, 1)),
                   .group = static_cast<std::size_t>(table(i, 2))};
    }
    return runs;
}

Residual residual_of(std::optional<Address> before, std::optional<Address> after, float factor) {
    if (before.has_value() != after.has_value())
        raise("half of a residual; accepted: before and after, or neither");
    if (!std::isfinite(factor)) raise("factor is " + std::to_string(factor) + "; accepted: a finite number");
    return {.before = memory_at<const float>(before.value_or(0)),
            .after = memory_at<float>(after.value_or(0)),
            .factor = factor};
}

void encode_runs(Codec codec, Address values, const Runs& table, Address coded, std::optional<Address> before,
                 std::optional<Address> after, float factor, const std::optional<std::string>& variant) {
    const std::vector<CodedRun> runs = runs_of(table);
    const Residual residual = residual_of(before, after, factor);
    const Variant chosen = find_variant(variant);
    const nb::gil_scoped_release release;
    encode(codec, memory_at<const float>(values), runs, residual, memory_at<std::uint8_t>(coded), chosen);
}

void decode_runs(Codec codec, Address coded, const Runs& table, Address values,
                 const std::optional<std::string>& variant) {
    const std::vector<CodedRun> runs = runs_of(table);
    const Variant chosen = find_variant(variant);
    const nb::gil_scoped_release release;
    decode(codec, memory_at<const std::uint8_t>(coded), runs, memory_at<float>(values), chosen);
}

void add_groups(Codec codec, Address coded, std::size_t groups, Address sums,
                const std::optional<std::string>& variant) {
    const Variant chosen = find_variant(variant);
    const nb::gil_scoped_release release;
    decode_add(codec, memory_at<const std::uint8_t>(coded), groups, memory_at<float>(sums), chosen);
}

void sum_groups(Codec codec, const std::vector<Address>& operands, std::size_t groups, std::uint32_t divisor,
                std::optional<Address> coded, std::optional<Address> values, std::optional<Address> before,
                std::optional<Address> after, float factor, const std::optional<std::string>& variant) {
    if (operands.empty()) raise("no operands; accepted: at least one");
    if (coded.has_value() == values.has_value()) raise("the sum goes to two places, or none; accepted: one");
    std::vector<const std::uint8_t*> addresses;
    for (const Address operand : operands) addresses.push_back(memory_at<const std::uint8_t>(operand));
    const CodedSum sum{.operands = addresses,
                       .divisor = divisor,
                       .residual = residual_of(before, after, factor),
                       .coded = memory_at<std::uint8_t>(coded.value_or(0)),
                       .values = memory_at<float>(values.value_or(0))};
    const Variant chosen = find_variant(variant);
    const nb::gil_scoped_release release;
    sum_coded(codec, sum, groups, chosen);
}

}  // namespace

void bind_codec(nb::module_& m) {
    nb::enum_<Codec> codec_enum(m, "Codec");
    for (const CodecTraits& each : codec_table) codec_enum.value(each.name, each.codec);
    nb::class_<CodecTraits>(m, "CodecTraits", "A row of the table of codecs (native/collective/codec.hpp).")
        .def_ro("codec", &CodecTraits::codec)
        .def_ro("name", &CodecTraits::name)
        .def_ro("bits", &CodecTraits::bits)
        .def_ro("code_max", &CodecTraits::code_max)
        .def_ro("not_a_number", &CodecTraits::not_a_number)
        .def_prop_ro("is_scaled", [](const CodecTraits& each) { return is_scaled(each.codec); })
        .def_prop_ro("group_bytes", [](const CodecTraits& each) { return group_bytes(each.codec); });
    nb::list table;
    for (const CodecTraits& each : codec_table) table.append(nb::cast(each));
    m.attr("CODECS") = nb::tuple(table);
    m.attr("GROUP_VALUES") = group_values;

    m.def("encode_runs", &encode_runs, nb::arg("codec"), nb::arg("values_address"), nb::arg("runs"),
          nb::arg("coded_address"), nb::arg("before_address") = nb::none(), nb::arg("after_address") = nb::none(),
          nb::arg("factor") = 1.0f, nb::kw_only(), nb::arg("variant") = nb::none(),
          "Codes runs (begin, count, group) of f32; after = values + factor * before - what was coded.");
    m.def("decode_runs", &decode_runs, nb::arg("codec"), nb::arg("coded_address"), nb::arg("runs"),
          nb::arg("values_address"), nb::kw_only(), nb::arg("variant") = nb::none(),
          "The values of coded runs, as f32.");
    m.def("add_groups", &add_groups, nb::arg("codec"), nb::arg("coded_address"), nb::arg("groups"),
          nb::arg("sums_address"), nb::kw_only(), nb::arg("variant") = nb::none(),
          "sums[i] += the coded values of whole groups.");
    m.def("sum_groups", &sum_groups, nb::arg("codec"), nb::arg("operand_addresses"), nb::arg("groups"),
          nb::arg("divisor"), nb::arg("coded_address") = nb::none(), nb::arg("values_address") = nb::none(),
          nb::arg("before_address") = nb::none(), nb::arg("after_address") = nb::none(), nb::arg("factor") = 1.0f,
          nb::kw_only(), nb::arg("variant") = nb::none(),
          "The sum of coded operands over the divisor, coded again, or as f32.");

    nb::class_<CodedRules>(m, "CodedRules", "The memory of a collective holds coded groups.")
        .def(
            "__init__",
            [](CodedRules* self, Codec codec, std::optional<Address> before, std::optional<Address> after,
               float factor, std::optional<Address> values) {
                new (self) CodedRules{.codec = codec,
                                      .residual = residual_of(before, after, factor),
                                      .values = memory_at<float>(values.value_or(0))};
            },
            nb::arg("codec"), nb::arg("before_address") = nb::none(), nb::arg("after_address") = nb::none(),
            nb::arg("factor") = 1.0f, nb::arg("values_address") = nb::none());
}

}  // namespace dlcp::bind

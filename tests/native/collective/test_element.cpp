// The tables of element types and operations.
#include "collective/element.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "collective/reduce.hpp"

namespace dlcp {
namespace {

TEST_CASE("element: each row stands at the value of its type, under a name of its own") {
    std::set<std::string> names, torch_names, recorder_names;
    for (std::size_t i = 0; i < data_types; ++i) {
        const DataTypeTraits& each = data_type_table[i];
        CHECK(static_cast<std::size_t>(each.type) == i);
        CHECK(std::string(name(each.type)) == each.name);
        CHECK(element_bytes(each.type) == each.bytes);
        names.insert(each.name);
        torch_names.insert(each.torch_name);
        recorder_names.insert(each.recorder_name);
    }
    CHECK(names.size() == data_types);
    CHECK(torch_names.size() == data_types);
    CHECK(recorder_names.size() == data_types);
    for (std::size_t i = 0; i < reduce_ops; ++i) CHECK(static_cast<std::size_t>(reduce_op_table[i].op) == i);
}

TEST_CASE("element: there is a kernel for each type and operation that is defined, and for no other") {
    for (const DataTypeTraits& type : data_type_table) {
        CHECK((find_average(type.type) != nullptr));
        CHECK((find_multiply(type.type) != nullptr));
        for (const ReduceOpTraits& op : reduce_op_table) {
            CAPTURE(type.name);
            CAPTURE(op.name);
            CHECK((find_reduce(type.type, op.op) != nullptr) == is_defined(op.op, type.type));
        }
    }
}

TEST_CASE("element: bitwise operations are not defined on floating types, all others are") {
    CHECK_FALSE(is_defined(ReduceOp::bxor, DataType::bf16));
    CHECK(is_defined(ReduceOp::bxor, DataType::boolean));
    CHECK(is_defined(ReduceOp::min, DataType::f64));
}

}  // namespace
}  // namespace dlcp

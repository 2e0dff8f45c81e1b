// The types of elements in a collective's memory, and the operations that combine two contributions.
//
// These two lists are the only ones: kernels, checks, bindings and Python take types, operations and their properties
// from them. A new type needs a row here, its arithmetic in reduce_element.hpp (ElementOf), and a name in
// dlcp/_native.pyi.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlcp {

// clang-format off

// name, bytes of an element, whether it is floating point, PyTorch's name, the name in PyTorch's flight recorder
#define DLCP_DATA_TYPES(row)                    \
    row(f32,     4, true,  "float32",  "Float")    \
    row(f64,     8, true,  "float64",  "Double")   \
    row(f16,     2, true,  "float16",  "Half")     \
    row(bf16,    2, true,  "bfloat16", "BFloat16") \
    row(i8,      1, false, "int8",     "Char")     \
    row(i16,     2, false, "int16",    "Short")    \
    row(i32,     4, false, "int32",    "Int")      \
    row(i64,     8, false, "int64",    "Long")     \
    row(u8,      1, false, "uint8",    "Byte")     \
    row(boolean, 1, false, "bool",     "Bool")

// name, whether it is bitwise
//
// AVG is a sum divided by the world size once it is complete; PREMUL_SUM is a sum of values that each rank has
// multiplied before it sent anything. So neither is an operation between two contributions.
#define DLCP_REDUCE_OPS(row) \
    row(sum,     false)      \
    row(product, false)      \
    row(min,     false)      \
    row(max,     false)      \
    row(band,    true)       \
    row(bor,     true)       \
    row(bxor,    true)

// clang-format on

#define DLCP_NAME(name, ...) name,
enum class DataType : std::uint8_t { DLCP_DATA_TYPES(DLCP_NAME) };
enum class ReduceOp : std::uint8_t { DLCP_REDUCE_OPS(DLCP_NAME) };
#undef DLCP_NAME

struct DataTypeTraits {
    DataType type;
    const char* name;           // here and in Python
    std::uint32_t bytes;        // of one element
    bool floating;              // else integers or truth values
    const char* torch_name;     // torch.NAME; numpy.NAME too where NumPy has the type
    const char* recorder_name;  // in PyTorch's flight recorder
};
struct ReduceOpTraits {
    ReduceOp op;
    const char* name;
    bool bitwise;  // not defined on floating types
};

#define DLCP_TYPE(name, bytes, floating, torch_name, recorder_name) \
    {DataType::name, #name, bytes, floating, torch_name, recorder_name},
#define DLCP_OP(name, bitwise) {ReduceOp::name, #name, bitwise},
inline constexpr DataTypeTraits data_type_table[] = {DLCP_DATA_TYPES(DLCP_TYPE)};
inline constexpr ReduceOpTraits reduce_op_table[] = {DLCP_REDUCE_OPS(DLCP_OP)};
#undef DLCP_OP
#undef DLCP_TYPE

inline constexpr std::size_t data_types = sizeof data_type_table / sizeof data_type_table[0];
inline constexpr std::size_t reduce_ops = sizeof reduce_op_table / sizeof reduce_op_table[0];

// Of a value of the enumeration. Kernels, which are compiled for several processors (kernels.hpp), call these in
// constant expressions only.
constexpr const DataTypeTraits& traits(DataType type) { return data_type_table[static_cast<std::size_t>(type)]; }
constexpr const ReduceOpTraits& traits(ReduceOp op) { return reduce_op_table[static_cast<std::size_t>(op)]; }

constexpr const char* name(DataType type) { return traits(type).name; }
constexpr const char* name(ReduceOp op) { return traits(op).name; }
constexpr std::size_t element_bytes(DataType type) { return traits(type).bytes; }
constexpr bool is_floating(DataType type) { return traits(type).floating; }
constexpr bool is_defined(ReduceOp op, DataType type) { return !(traits(op).bitwise && is_floating(type)); }

}  // namespace dlcp

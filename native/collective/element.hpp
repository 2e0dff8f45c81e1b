// What a collective's memory is made of, and how two contributions become one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlcp {

enum class DataType : std::uint8_t { f32, f64, f16, bf16, i8, i16, i32, i64, u8, boolean };
inline constexpr std::size_t data_types = 10;

// AVG is a sum divided by the world size once it is complete; PREMUL_SUM is a sum of values that each rank has
// multiplied before it sent anything. So neither is an operation between two contributions.
enum class ReduceOp : std::uint8_t { sum, product, min, max, band, bor, bxor };
inline constexpr std::size_t reduce_ops = 7;

constexpr std::size_t element_bytes(DataType type) {
    switch (type) {
        case DataType::f64:
        case DataType::i64: return 8;
        case DataType::f32:
        case DataType::i32: return 4;
        case DataType::f16:
        case DataType::bf16:
        case DataType::i16: return 2;
        case DataType::i8:
        case DataType::u8:
        case DataType::boolean: return 1;
    }
    return 1;
}

const char* name(DataType type);
const char* name(ReduceOp op);

}  // namespace dlcp

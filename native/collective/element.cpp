#include "collective/element.hpp"

namespace dlcp {

const char* name(DataType type) {
    switch (type) {
        case DataType::f32: return "f32";
        case DataType::f64: return "f64";
        case DataType::f16: return "f16";
        case DataType::bf16: return "bf16";
        case DataType::i8: return "i8";
        case DataType::i16: return "i16";
        case DataType::i32: return "i32";
        case DataType::i64: return "i64";
        case DataType::u8: return "u8";
        case DataType::boolean: return "boolean";
    }
    return "?";
}

const char* name(ReduceOp op) {
    switch (op) {
        case ReduceOp::sum: return "sum";
        case ReduceOp::product: return "product";
        case ReduceOp::min: return "min";
        case ReduceOp::max: return "max";
        case ReduceOp::band: return "band";
        case ReduceOp::bor: return "bor";
        case ReduceOp::bxor: return "bxor";
    }
    return "?";
}

}  // namespace dlcp

// Vectors as wide as the processor that the including file is compiled for has them, for the few loops whose shape a
// compiler would not find by itself. Included by one file per variant only (see kernels.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace dlcp {
namespace {

#if defined(__AVX512F__)
inline constexpr std::size_t vector_bytes = 64;
#elif defined(__AVX2__)
inline constexpr std::size_t vector_bytes = 32;
#else
inline constexpr std::size_t vector_bytes = 16;
#endif

template <class Element>
struct VectorOf {
    static constexpr std::size_t lanes = vector_bytes / sizeof(Element);
    using Type [[gnu::vector_size(vector_bytes)]] = Element;
};
template <class Element>
using Vector = typename VectorOf<Element>::Type;

template <class Element>
inline constexpr std::size_t lanes_of = VectorOf<Element>::lanes;

using Floats = Vector<float>;
using Words = Vector<std::uint32_t>;
using Ints = Vector<std::int32_t>;
inline constexpr std::size_t lanes = lanes_of<float>;
inline constexpr std::uint32_t sign_bit = 0x8000'0000;  // of a float

template <class V>
inline V load_vector(const void* from) {
    V v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}
template <class V>
inline void store_vector(void* to, V v) {
    __builtin_memcpy(to, &v, sizeof v);
}

}  // namespace
}  // namespace dlcp

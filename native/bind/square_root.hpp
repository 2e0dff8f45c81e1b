// MKL's square root of vectors, as libtorch carries it (dlcp/torch/vml.py).
#pragma once

#include <cstdint>

#include "bind/kernel.hpp"
#include "collective/optimizer.hpp"

namespace dlcp::bind {

// As Fortran calls it. The mode is torch's: high accuracy, subnormal numbers count, errors are not reported.
inline void call_vml(const void* function, const float* in, float* out, std::size_t count) {
    using VmlFunction = void (*)(const int* count, const float* in, float* out, const std::int64_t* mode);
    const std::int64_t mode = 0x2 | 0x140000 | 0x100;
    const auto length = static_cast<int>(count);
    reinterpret_cast<VmlFunction>(const_cast<void*>(function))(&length, in, out, &mode);
}

inline SquareRoot vml_root(std::uintptr_t address) {
    return {.call = call_vml, .context = memory_at<const void>(address)};
}

}  // namespace dlcp::bind

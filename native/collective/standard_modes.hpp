// Calls a loop in the floating-point modes that its results are defined for: rounding to nearest, and denormals count,
// whatever the calling thread has set (torch.set_flush_denormal). In an unnamed namespace, as all that kernels compiled
// for different processors include (see kernels.hpp).
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace dlcp {
namespace {

// The loop is not inlined: compilers do not know that the register changes what arithmetic means.
template <class... Args>
inline void in_standard_modes(void (*loop)(Args...), Args... args) {
#if defined(__x86_64__)
    constexpr unsigned standard = 0x1f80;  // all exceptions masked, nothing else
    constexpr unsigned flags = 0x3f;       // which exceptions there have been
    const unsigned modes = _mm_getcsr();
    if ((modes & ~flags) == standard) return loop(args...);
    _mm_setcsr(standard);
    loop(args...);
    _mm_setcsr(modes);
#elif defined(__aarch64__)
    std::uint64_t modes;
    asm volatile("mrs %0, fpcr" : "=r"(modes) : : "memory");
    if (modes == 0) return loop(args...);
    asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}) : "memory");
    loop(args...);
    asm volatile("msr fpcr, %0" : : "r"(modes) : "memory");
#else
    loop(args...);
#endif
}

}  // namespace
}  // namespace dlcp

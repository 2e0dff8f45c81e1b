// What this x86 processor can do and the operating system lets it do.
//
// Asked of the processor itself: the compiler's __builtin_cpu_supports says no to everything where zig 0.17 builds, as
// wheels are built, and a rank would then run without vectors and AEGIS and say nothing.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

namespace dlcp {

struct Processor {
    bool intel = false;
    bool aes = false;
    bool vaes = false;
    /// AVX2 with FMA and F16C, and their registers are kept.
    bool avx2 = false;
    /// AVX-512 F, BW, DQ and VL, and their registers are kept.
    bool avx512 = false;
};

inline const Processor& processor() {
    static const Processor found = [] {
        Processor has;
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return has;
        has.intel = ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx && edx == signature_INTEL_edx;
        if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return has;
        has.aes = (ecx & bit_AES) != 0;
        const bool fma = (ecx & bit_FMA) != 0, f16c = (ecx & bit_F16C) != 0;
        // Which registers the operating system keeps: XCR0, Intel's manual, volume 1, 13.3.
        unsigned kept = 0, high = 0;
        if ((ecx & bit_OSXSAVE) != 0) __asm__("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
        constexpr unsigned ymm = 0x06, zmm = 0xe6;
        if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return has;
        has.vaes = (ecx & bit_VAES) != 0;
        has.avx2 = (kept & ymm) == ymm && (ebx & bit_AVX2) != 0 && fma && f16c;
        constexpr unsigned skylake = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
        has.avx512 = (kept & zmm) == zmm && (ebx & skylake) == skylake;
        return has;
    }();
    return found;
}

}  // namespace dlcp
#endif

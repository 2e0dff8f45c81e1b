// For x86-64 with AVX-512 F, BW, DQ and VL (servers since 2017). CMakeLists.txt compiles this file for such processors.
#include "collective/kernels.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "collective/all_loops.hpp"

const dlcp::Kernels* const dlcp::avx512_kernels = &kernels;

#else

const dlcp::Kernels* const dlcp::avx512_kernels = nullptr;

#endif

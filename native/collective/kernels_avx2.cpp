// For x86-64 with AVX2, FMA and F16C. CMakeLists.txt compiles this file for such processors.
#include "collective/kernels.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "collective/all_loops.hpp"

const dlcp::Kernels* const dlcp::avx2_kernels = &kernels;

#else

const dlcp::Kernels* const dlcp::avx2_kernels = nullptr;

#endif

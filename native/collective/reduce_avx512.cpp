// Kernels for x86-64 with AVX-512 F, BW, DQ and VL (servers since 2017). CMakeLists.txt compiles this file for such
// processors.
#include "collective/reduce_kernels.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "collective/reduce_loops.hpp"

namespace dlcp {

namespace {
constexpr ReduceKernels kernels = make_kernels();
}

const ReduceKernels* avx512_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::ReduceKernels* dlcp::avx512_kernels() { return nullptr; }

#endif

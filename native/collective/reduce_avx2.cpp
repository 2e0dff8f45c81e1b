// Kernels for x86-64 with AVX2 and F16C. CMakeLists.txt compiles this file for such processors.
#include "collective/reduce_kernels.hpp"

#if defined(__AVX2__) && defined(__F16C__)

#include "collective/reduce_loops.hpp"

namespace dlcp {

namespace {
constexpr ReduceKernels kernels = make_kernels();
}

const ReduceKernels* avx2_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::ReduceKernels* dlcp::avx2_kernels() { return nullptr; }

#endif

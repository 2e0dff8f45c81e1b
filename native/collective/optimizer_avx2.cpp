// Optimizers for x86-64 with AVX2 and FMA. CMakeLists.txt compiles this file for such processors.
#include "collective/optimizer_kernels.hpp"

#if defined(__AVX2__) && defined(__FMA__)

#include "collective/optimizer_loops.hpp"

namespace dlcp {

namespace {
constexpr OptimizerKernels kernels = make_optimizer_kernels();
}

const OptimizerKernels* avx2_optimizer_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::OptimizerKernels* dlcp::avx2_optimizer_kernels() { return nullptr; }

#endif

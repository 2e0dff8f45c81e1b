// Optimizers for x86-64 with AVX-512 F, BW, DQ and VL. CMakeLists.txt compiles this file for such
// processors.
#include "collective/optimizer_kernels.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "collective/optimizer_loops.hpp"

namespace dlcp {

namespace {
constexpr OptimizerKernels kernels = make_optimizer_kernels();
}

const OptimizerKernels* avx512_optimizer_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::OptimizerKernels* dlcp::avx512_optimizer_kernels() { return nullptr; }

#endif

// Sums of squares for x86-64 with AVX-512 F, BW, DQ and VL. CMakeLists.txt compiles this file for such
// processors.
#include "collective/importance_kernels.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "collective/importance_loops.hpp"

namespace dlcp {

namespace {
constexpr ImportanceKernels kernels = make_importance_kernels();
}

const ImportanceKernels* avx512_importance_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::ImportanceKernels* dlcp::avx512_importance_kernels() { return nullptr; }

#endif

// Sums of squares for x86-64 with AVX2 and F16C. CMakeLists.txt compiles this file for such processors.
#include "collective/importance_kernels.hpp"

#if defined(__AVX2__) && defined(__F16C__)

#include "collective/importance_loops.hpp"

namespace dlcp {

namespace {
constexpr ImportanceKernels kernels = make_importance_kernels();
}

const ImportanceKernels* avx2_importance_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::ImportanceKernels* dlcp::avx2_importance_kernels() { return nullptr; }

#endif

// Sums of squares for any processor of the architecture built for; on x86-64 with SSE2, on Arm with its vectors.
#include "collective/importance_loops.hpp"

namespace dlcp {

namespace {
constexpr ImportanceKernels kernels = make_importance_kernels();
}

const ImportanceKernels& portable_importance_kernels() { return kernels; }

}  // namespace dlcp

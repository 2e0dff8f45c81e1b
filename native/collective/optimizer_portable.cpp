// Optimizers for any processor of the architecture built for; on x86-64 with SSE2, on Arm with its vectors.
#include "collective/optimizer_loops.hpp"

namespace dlcp {

namespace {
constexpr OptimizerKernels kernels = make_optimizer_kernels();
}

const OptimizerKernels& portable_optimizer_kernels() { return kernels; }

}  // namespace dlcp

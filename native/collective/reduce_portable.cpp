// Kernels for any processor of the architecture built for; on x86-64 with SSE2, on Arm with its vectors.
#include "collective/reduce_loops.hpp"

namespace dlcp {

namespace {
constexpr ReduceKernels kernels = make_kernels();
}

const ReduceKernels& portable_kernels() { return kernels; }

}  // namespace dlcp

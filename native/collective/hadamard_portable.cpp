// Hadamard transforms for any processor of the architecture built for; on x86-64 with SSE2, on Arm with its vectors.
#include "collective/hadamard_loops.hpp"

namespace dlcp {

namespace {
constexpr HadamardKernels kernels = make_hadamard_kernels();
}

const HadamardKernels& portable_hadamard_kernels() { return kernels; }

}  // namespace dlcp

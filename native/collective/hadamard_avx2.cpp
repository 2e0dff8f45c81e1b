// Hadamard transforms for x86-64 with AVX2 and F16C. CMakeLists.txt compiles this file for such processors.
#include "collective/hadamard_kernels.hpp"

#if defined(__AVX2__) && defined(__F16C__)

#include "collective/hadamard_loops.hpp"

namespace dlcp {

namespace {
constexpr HadamardKernels kernels = make_hadamard_kernels();
}

const HadamardKernels* avx2_hadamard_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::HadamardKernels* dlcp::avx2_hadamard_kernels() { return nullptr; }

#endif

// Hadamard transforms for x86-64 with AVX-512 F, BW, DQ and VL. CMakeLists.txt compiles this file for such
// processors.
#include "collective/hadamard_kernels.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "collective/hadamard_loops.hpp"

namespace dlcp {

namespace {
constexpr HadamardKernels kernels = make_hadamard_kernels();
}

const HadamardKernels* avx512_hadamard_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::HadamardKernels* dlcp::avx512_hadamard_kernels() { return nullptr; }

#endif

// The loops of a selection for x86-64 with AVX2. CMakeLists.txt compiles this file for such processors.
#include "collective/select_kernels.hpp"

#if defined(__AVX2__)

#include "collective/select_loops.hpp"

namespace dlcp {

namespace {
constexpr SelectKernels kernels{.collect = collect, .count = count_keys, .keep = keep};
}

const SelectKernels* avx2_select_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::SelectKernels* dlcp::avx2_select_kernels() { return nullptr; }

#endif

// The loops of a selection for any processor of the architecture built for; on x86-64 with SSE2, on Arm with
// its vectors.
#include "collective/select_loops.hpp"

namespace dlcp {

namespace {
constexpr SelectKernels kernels{.collect = collect, .count = count_keys, .keep = keep};
}

const SelectKernels& portable_select_kernels() { return kernels; }

}  // namespace dlcp

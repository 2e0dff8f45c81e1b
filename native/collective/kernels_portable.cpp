// For any processor of the architecture built for: on x86-64 with SSE2, on Arm with its vectors.
#include "collective/all_loops.hpp"

const dlcp::Kernels* const dlcp::portable_kernels = &kernels;

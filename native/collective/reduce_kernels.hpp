// The kernels of each variant as a table. One file per variant fills one, compiled for its processors; so these files
// must not share an inline function with anybody: the linker keeps one copy of it, perhaps the one that the processor
// at hand cannot run. Hence they include no library but for types and intrinsics, and all of reduce_element.hpp,
// reduce_half.hpp and reduce_loops.hpp is in an unnamed namespace.
#pragma once

#include "collective/reduce.hpp"

namespace dlcp {

struct ReduceKernels {
    ReduceFunction reduce[data_types][reduce_ops] = {};  // nullptr: not defined
    AverageFunction average[data_types] = {};
    MultiplyFunction multiply[data_types] = {};
};

const ReduceKernels& portable_kernels();
// nullptr: not in this build. Says nothing about the processor.
const ReduceKernels* avx2_kernels();
const ReduceKernels* avx512_kernels();

}  // namespace dlcp

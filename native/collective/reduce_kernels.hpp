// The reductions of each variant as a table; why variants are in files of their own: kernels.hpp.
#pragma once

#include "collective/reduce.hpp"

namespace dlcp {

struct ReduceKernels {
    ReduceFunction reduce[data_types][reduce_ops] = {};  // nullptr: not defined
    AverageFunction average[data_types] = {};
    MultiplyFunction multiply[data_types] = {};
};

}  // namespace dlcp

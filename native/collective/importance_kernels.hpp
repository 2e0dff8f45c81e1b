// The sum of squares of each variant as a table; why variants are in files of their own: kernels.hpp.
#pragma once

#include "collective/element.hpp"

namespace dlcp {

// Of `count` elements, in the shape that importance.hpp lays down. Called in standard modes.
using SquareSumFunction = double (*)(const void* data, std::size_t count);

struct ImportanceKernels {
    SquareSumFunction square_sum[data_types] = {};  // nullptr: not floating
};

}  // namespace dlcp

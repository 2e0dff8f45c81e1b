// All loops, for the processor that the including file is compiled for. Included by one file per variant only (see
// kernels.hpp).
#pragma once

#include "collective/codec_loops.hpp"
#include "collective/hadamard_loops.hpp"
#include "collective/importance_loops.hpp"
#include "collective/kernels.hpp"
#include "collective/optimizer_loops.hpp"
#include "collective/reduce_loops.hpp"
#include "collective/select_loops.hpp"

namespace dlcp {
namespace {

constexpr Kernels kernels{.reduce = make_reduce_kernels(),
                          .codec = make_codec_kernels(),
                          .hadamard = {transform_piece},
                          .importance = make_importance_kernels(),
                          .optimizer = make_optimizer_kernels(),
                          .select = {.collect = collect, .count = count_keys, .keep = keep}};

}  // namespace
}  // namespace dlcp

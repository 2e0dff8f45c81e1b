// The loops that depend on the processor, as a table of functions for each variant.
//
// One file per variant fills one, compiled for its processors; so these files must not share an inline function with
// anybody: the linker keeps one copy of it, perhaps the one that the processor at hand cannot run. Hence they include no
// library but for types and intrinsics, and all that they include of *_loops.hpp is in an unnamed namespace.
#pragma once

#include "collective/codec_kernels.hpp"
#include "collective/hadamard_kernels.hpp"
#include "collective/importance_kernels.hpp"
#include "collective/optimizer_kernels.hpp"
#include "collective/reduce_kernels.hpp"
#include "collective/select_kernels.hpp"

namespace dlcp {

struct Kernels {
    ReduceKernels reduce;
    CodecKernels codec;
    HadamardKernels hadamard;
    ImportanceKernels importance;
    OptimizerKernels optimizer;
    SelectKernels select;
};

extern const Kernels* const portable_kernels;
// nullptr: not in this build. Says nothing about the processor.
extern const Kernels* const avx2_kernels;
extern const Kernels* const avx512_kernels;

// Of a variant that this build has.
const Kernels& kernels_of(Variant variant);

}  // namespace dlcp

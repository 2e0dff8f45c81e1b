// Coded groups for any processor of the architecture built for; on x86-64 with SSE2, on Arm with its vectors.
#include "collective/codec_loops.hpp"

namespace dlcp {

namespace {
constexpr CodecKernels kernels = make_codec_kernels();
}

const CodecKernels& portable_codec_kernels() { return kernels; }

}  // namespace dlcp

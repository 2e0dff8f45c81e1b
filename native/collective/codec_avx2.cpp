// Coded groups for x86-64 with AVX2 and F16C. CMakeLists.txt compiles this file for such processors.
#include "collective/codec_kernels.hpp"

#if defined(__AVX2__) && defined(__F16C__)

#include "collective/codec_loops.hpp"

namespace dlcp {

namespace {
constexpr CodecKernels kernels = make_codec_kernels();
}

const CodecKernels* avx2_codec_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::CodecKernels* dlcp::avx2_codec_kernels() { return nullptr; }

#endif

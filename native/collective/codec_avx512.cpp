// Coded groups for x86-64 with AVX-512 F, BW, DQ and VL. CMakeLists.txt compiles this file for such
// processors.
#include "collective/codec_kernels.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "collective/codec_loops.hpp"

namespace dlcp {

namespace {
constexpr CodecKernels kernels = make_codec_kernels();
}

const CodecKernels* avx512_codec_kernels() { return &kernels; }

}  // namespace dlcp

#else

const dlcp::CodecKernels* dlcp::avx512_codec_kernels() { return nullptr; }

#endif

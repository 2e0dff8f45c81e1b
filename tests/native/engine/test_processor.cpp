// What a processor can do, beside what the compiler's runtime says where that can be believed.
#include "engine/processor.hpp"

#include <doctest/doctest.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

namespace dlcp {

TEST_CASE("the processor says of itself what the compiler's runtime says") {
    const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                        __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    CHECK(processor().intel == (__builtin_cpu_is("intel") != 0));
    CHECK(processor().aes == (__builtin_cpu_supports("aes") != 0));
    CHECK(processor().vaes == (__builtin_cpu_supports("vaes") != 0));
    CHECK(processor().avx2 == avx2);
    CHECK(processor().avx512 == avx512);
}

}  // namespace dlcp

#endif

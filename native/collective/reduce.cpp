// Which kernels this build has and this processor can run.
#include "collective/reduce.hpp"

#include <array>
#include <cassert>

#include "collective/kernels.hpp"
#include "engine/processor.hpp"

namespace dlcp {
namespace {

struct Available {
    std::array<Variant, 3> variants{};
    std::size_t count = 0;
    void add(Variant variant) { variants[count++] = variant; }
};

Available find_available() {
    Available found;
    found.add(Variant::portable);
#if defined(__x86_64__)
    if (avx2_kernels != nullptr && processor().avx2) found.add(Variant::avx2);
    if (avx512_kernels != nullptr && processor().avx512) found.add(Variant::avx512);
#endif
    return found;
}

const ReduceKernels& best_kernels() {
    static const ReduceKernels& best = kernels_of(available_variants().back()).reduce;
    return best;
}

constexpr std::size_t index(DataType type) { return static_cast<std::size_t>(type); }
constexpr std::size_t index(ReduceOp op) { return static_cast<std::size_t>(op); }

}  // namespace

std::span<const Variant> available_variants() {
    static const Available available = find_available();
    return {available.variants.data(), available.count};
}

const Kernels& kernels_of(Variant variant) {
    const Kernels* kernels = portable_kernels;
    if (variant == Variant::avx2) kernels = avx2_kernels;
    if (variant == Variant::avx512) kernels = avx512_kernels;
    assert(kernels != nullptr);
    return *kernels;
}

const char* name(Variant variant) {
    switch (variant) {
        case Variant::portable: return "portable";
        case Variant::avx2: return "avx2";
        case Variant::avx512: return "avx512";
    }
    return "?";
}

ReduceFunction find_reduce(DataType type, ReduceOp op) { return best_kernels().reduce[index(type)][index(op)]; }
AverageFunction find_average(DataType type) { return best_kernels().average[index(type)]; }
MultiplyFunction find_multiply(DataType type) { return best_kernels().multiply[index(type)]; }

ReduceFunction find_reduce(DataType type, ReduceOp op, Variant variant) {
    return kernels_of(variant).reduce.reduce[index(type)][index(op)];
}
AverageFunction find_average(DataType type, Variant variant) {
    return kernels_of(variant).reduce.average[index(type)];
}
MultiplyFunction find_multiply(DataType type, Variant variant) {
    return kernels_of(variant).reduce.multiply[index(type)];
}

}  // namespace dlcp

// Reduction kernels: every variant that this machine can run against the portable one, bit by bit. That the portable
// one computes the right thing is in tests/transport/communicator/test_reduce.py, against a slow oracle.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <doctest/doctest.h>

#include "collective/reduce.hpp"

using namespace dlcp;

namespace {

using Bytes = std::vector<std::uint8_t>;

template <class Function>
void for_each_type(Function function) {
    for (std::size_t t = 0; t < data_types; ++t) function(static_cast<DataType>(t));
}
template <class Function>
void for_each_op(Function function) {
    for (std::size_t o = 0; o < reduce_ops; ++o) function(static_cast<ReduceOp>(o));
}

// Random bits, every third element one that arithmetic treats specially: zeros, infinities, NaNs with all kinds of
// payloads, denormals, the largest and the least, of each sign.
Bytes random_elements(DataType type, std::size_t count, std::mt19937_64& random) {
    const std::size_t size = element_bytes(type);
    const std::uint64_t exponent = type == DataType::f64    ? 0x7ff0000000000000
                                   : type == DataType::f32  ? 0x7f800000
                                   : type == DataType::bf16 ? 0x7f80
                                   : type == DataType::f16  ? 0x7c00
                                                            : 0;
    const std::uint64_t ones = size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << size * 8) - 1;
    const std::uint64_t sign = ones ^ ones >> 1;
    const std::uint64_t quiet = exponent != 0 ? (exponent & (~exponent + 1)) >> 1 : 1;
    const std::array<std::uint64_t, 10> special{0,
                                                1,
                                                quiet,
                                                exponent,
                                                exponent | 1,
                                                exponent | quiet,
                                                ones ^ sign,
                                                exponent - 1,
                                                quiet - 1,
                                                exponent | (quiet << 1)};
    Bytes bytes(count * size);
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t bits = random();
        if (i % 3 == 0) bits = special[bits % special.size()] | (bits >> 63 != 0 ? sign : 0);
        std::memcpy(bytes.data() + i * size, &bits, size);  // little-endian: the low bytes
    }
    return bytes;
}

// Memory that starts `offset` past a multiple of 64 and ends with its allocation, so that a sanitizer sees what is read
// outside, with a mark before it to see what is written there.
class Place {
public:
    Place(std::size_t offset, const Bytes& content) : offset_(64 + offset), bytes_(content.size()) {
        data_.reset(static_cast<std::uint8_t*>(::operator new (offset_ + bytes_, std::align_val_t{64})));
        std::fill_n(data_.get(), offset_, std::uint8_t{0xa5});
        std::copy(content.begin(), content.end(), data());
    }
    std::uint8_t* data() { return data_.get() + offset_; }
    Bytes content() { return {data(), data() + bytes_}; }
    bool untouched_before() const {
        return std::all_of(data_.get(), data_.get() + offset_, [](std::uint8_t byte) { return byte == 0xa5; });
    }

private:
    struct Free {
        void operator()(std::uint8_t* p) const { ::operator delete (p, std::align_val_t{64}); }
    };
    std::size_t offset_;
    std::size_t bytes_;
    std::unique_ptr<std::uint8_t, Free> data_;
};

// A result of one element alone, from the portable variant: what place and count could not have changed.
Bytes one_by_one(DataType type, ReduceOp op, const Bytes& a, const Bytes& b) {
    const auto reduce = find_reduce(type, op, Variant::portable);
    const std::size_t size = element_bytes(type);
    Bytes out(a.size());
    for (std::size_t at = 0; at < a.size(); at += size) reduce(&out[at], &a[at], &b[at], 1);
    return out;
}

const std::array<double, 8> factors{0.25,
                                    -1.0 / 3,
                                    0.0,
                                    -0.0,
                                    1e300,
                                    1e-320,
                                    std::numeric_limits<double>::infinity(),
                                    std::numeric_limits<double>::quiet_NaN()};
const std::array<std::uint32_t, 7> divisors{1, 2, 3, 64, 1000, (1u << 24) + 1, UINT32_MAX};

}  // namespace

TEST_CASE("reduce: bitwise operations are not defined on floating point, and everything else is") {
    for_each_type([](DataType type) {
        const bool floating =
            type == DataType::f32 || type == DataType::f64 || type == DataType::f16 || type == DataType::bf16;
        for_each_op([=](ReduceOp op) {
            CAPTURE(std::string(name(type)) + ' ' + name(op));
            const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
            CHECK((find_reduce(type, op) != nullptr) == !(floating && bitwise));
            for (const Variant variant : available_variants())
                CHECK((find_reduce(type, op, variant) != nullptr) == !(floating && bitwise));
        });
        for (const Variant variant : available_variants()) {
            CHECK((find_average(type, variant) != nullptr));
            CHECK((find_multiply(type, variant) != nullptr));
        }
    });
}

TEST_CASE("reduce: any count at any alignment, in place or not, gives the bits of one element after the other") {
    std::mt19937_64 random(20);
    std::string variants;
    for (const Variant variant : available_variants()) variants += std::string(name(variant)) + ' ';
    MESSAGE("variants on this machine: " << variants);
    for (const Variant variant : available_variants()) {
        for_each_type([&](DataType type) {
            const std::size_t size = element_bytes(type);
            for_each_op([&](ReduceOp op) {
                const auto reduce = find_reduce(type, op, variant);
                if (reduce == nullptr) return;
                CAPTURE(std::string(name(variant)) + ' ' + name(type) + ' ' + name(op));
                const auto check = [&](std::size_t count) {
                    CAPTURE(count);
                    const Bytes a = random_elements(type, count, random);
                    const Bytes b = random_elements(type, count, random);
                    const Bytes expected = one_by_one(type, op, a, b);
                    Place place_a(random() % 64, a);
                    Place place_b(random() % 64, b);
                    Place apart(random() % 64, Bytes(a.size()));
                    reduce(apart.data(), place_a.data(), place_b.data(), count);
                    REQUIRE(apart.content() == expected);
                    REQUIRE(apart.untouched_before());
                    REQUIRE(place_a.content() == a);
                    REQUIRE(place_b.content() == b);
                    Place onto_b(random() % 64, b);
                    reduce(onto_b.data(), place_a.data(), onto_b.data(), count);
                    REQUIRE(onto_b.content() == expected);
                    REQUIRE(onto_b.untouched_before());
                    reduce(place_a.data(), place_a.data(), place_b.data(), count);
                    REQUIRE(place_a.content() == expected);
                    REQUIRE(place_a.untouched_before());
                    const Bytes twice = one_by_one(type, op, b, b);
                    reduce(place_b.data(), place_b.data(), place_b.data(), count);
                    REQUIRE(place_b.content() == twice);
                };
                for (std::size_t count = 0; count <= 200; ++count) check(count);
                for (const std::size_t bytes : {1392, 9072}) check(bytes / size);
            });
        });
    }
}

TEST_CASE("reduce: operands may be exchanged") {
    std::mt19937_64 random(21);
    for_each_type([&](DataType type) {
        const Bytes a = random_elements(type, 10'000, random);
        const Bytes b = random_elements(type, 10'000, random);
        for_each_op([&](ReduceOp op) {
            const auto reduce = find_reduce(type, op);
            if (reduce == nullptr) return;
            CAPTURE(std::string(name(type)) + ' ' + name(op));
            Bytes ab(a.size());
            Bytes ba(a.size());
            reduce(ab.data(), a.data(), b.data(), 10'000);
            reduce(ba.data(), b.data(), a.data(), 10'000);
            CHECK(ab == ba);
        });
    });
}

TEST_CASE("average, multiply: every variant, count and alignment gives the portable bits of one element alone") {
    std::mt19937_64 random(22);
    for (const Variant variant : available_variants()) {
        for_each_type([&](DataType type) {
            const std::size_t size = element_bytes(type);
            CAPTURE(std::string(name(variant)) + ' ' + name(type));
            for (std::size_t count = 0; count <= 200; ++count) {
                CAPTURE(count);
                const Bytes in = random_elements(type, count, random);
                const std::uint32_t divisor = divisors[count % divisors.size()];
                CAPTURE(divisor);
                Bytes expected = in;
                for (std::size_t at = 0; at < in.size(); at += size)
                    find_average(type, Variant::portable)(&expected[at], 1, divisor);
                Place averaged(random() % 64, in);
                find_average(type, variant)(averaged.data(), count, divisor);
                REQUIRE(averaged.content() == expected);
                REQUIRE(averaged.untouched_before());

                const double factor = factors[count % factors.size()];
                CAPTURE(factor);
                for (std::size_t at = 0; at < in.size(); at += size)
                    find_multiply(type, Variant::portable)(&expected[at], &in[at], 1, factor);
                Place from(random() % 64, in);
                Place to(random() % 64, Bytes(in.size()));
                find_multiply(type, variant)(to.data(), from.data(), count, factor);
                REQUIRE(to.content() == expected);
                REQUIRE(to.untouched_before());
                REQUIRE(from.content() == in);
                find_multiply(type, variant)(from.data(), from.data(), count, factor);
                REQUIRE(from.content() == expected);
            }
        });
    }
}

#if defined(__x86_64__)

TEST_CASE("reduce: a thread that flushes denormals or rounds otherwise gets the same bits, and keeps its modes") {
    std::mt19937_64 random(23);
    constexpr std::size_t count = 500;
    constexpr unsigned standard = 0x1f80;
    for (const unsigned modes :
         {standard | 0x8040u /* flush, denormals are zero */, standard | 0x6000u /* to zero */}) {
        for (const Variant variant : available_variants()) {
            for_each_type([&](DataType type) {
                const Bytes a = random_elements(type, count, random);
                const Bytes b = random_elements(type, count, random);
                const auto in_modes = [&](auto call) {
                    const unsigned before = _mm_getcsr();
                    Bytes expected = a;
                    call(expected);
                    Bytes found = a;
                    _mm_setcsr(modes);
                    call(found);
                    const unsigned after = _mm_getcsr();
                    _mm_setcsr(before);
                    REQUIRE((after & ~0x3fu) == modes);
                    REQUIRE(found == expected);
                };
                CAPTURE(modes);
                CAPTURE(std::string(name(variant)) + ' ' + name(type));
                for_each_op([&](ReduceOp op) {
                    const auto reduce = find_reduce(type, op, variant);
                    if (reduce == nullptr) return;
                    CAPTURE(name(op));
                    in_modes([&](Bytes& data) { reduce(data.data(), data.data(), b.data(), count); });
                });
                for (const std::uint32_t divisor : {3u, 4u})
                    in_modes([&](Bytes& data) { find_average(type, variant)(data.data(), count, divisor); });
                in_modes([&](Bytes& data) { find_multiply(type, variant)(data.data(), data.data(), count, 0.3); });
            });
        }
    }
}

#endif

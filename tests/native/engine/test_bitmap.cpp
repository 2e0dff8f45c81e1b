// Bitmap: over the blocks of one message.
#include <doctest/doctest.h>

#include "engine/bitmap.hpp"

namespace dlcp {
namespace {

Bitmap of(std::uint32_t size) {
    Bitmap bitmap;
    bitmap.reset(size);
    return bitmap;
}

TEST_CASE("bitmap: insert says whether the bit was clear") {
    Bitmap bitmap = of(100);
    CHECK(bitmap.insert(70));
    CHECK(!bitmap.insert(70));
    CHECK(bitmap.test(70));
    CHECK(bitmap.count() == 1);
    bitmap.clear(70);
    CHECK(!bitmap.test(70));
}

TEST_CASE("bitmap: find goes over words without a set bit") {
    Bitmap bitmap = of(400);
    bitmap.set(3);
    bitmap.set(399);
    CHECK(bitmap.find(0) == 3);
    CHECK(bitmap.find(3) == 3);
    CHECK(bitmap.find(4) == 399);
    CHECK(bitmap.find(400) == Bitmap::none);
}

TEST_CASE("bitmap: turned over, it holds what was missing, and nothing past its size") {
    for (const std::uint32_t size : {1, 63, 64, 65, 130}) {
        CAPTURE(size);
        Bitmap bitmap = of(size);
        bitmap.set(0);
        bitmap.invert();
        CHECK(!bitmap.test(0));
        CHECK(bitmap.count() == size - 1);
    }
}

TEST_CASE("bitmap: a word that came over the network adds the bits that were clear, and none past the size") {
    Bitmap bitmap = of(70);
    CHECK(bitmap.merge_word(1, ~std::uint64_t{0}) == 6);
    CHECK(bitmap.merge_word(1, ~std::uint64_t{0}) == 0);
    CHECK(bitmap.merge_word(2, ~std::uint64_t{0}) == 0);
    CHECK(bitmap.count() == 6);
}

}  // namespace
}  // namespace dlcp

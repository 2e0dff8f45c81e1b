// Memory that comes back is used again, within bounds.
#include "collective/memory_pool.hpp"

#include <doctest/doctest.h>

namespace dlcp {
namespace {

TEST_CASE("memory pool: a piece that came back is given out again") {
    MemoryPool pool;
    MemoryPool::Piece piece = pool.take(10'000);
    const std::uint8_t* data = piece.data.get();
    CHECK(piece.bytes >= 10'000);
    pool.give_back(std::move(piece));
    CHECK(pool.take(9'000).data.get() == data);
}

TEST_CASE("memory pool: the smallest piece that is large enough is taken") {
    MemoryPool pool;
    MemoryPool::Piece small = pool.take(8'000), large = pool.take(20'000);
    const std::uint8_t* smaller = small.data.get();
    const std::uint8_t* larger = large.data.get();
    pool.give_back(std::move(large));
    pool.give_back(std::move(small));
    CHECK(pool.take(8'000).data.get() == smaller);
    CHECK(pool.take(9'000).data.get() == larger);
}

TEST_CASE("memory pool: a large piece is not spent on a small need") {
    MemoryPool pool;
    MemoryPool::Piece large = pool.take(1 << 20);
    const std::uint8_t* data = large.data.get();
    pool.give_back(std::move(large));
    CHECK(pool.take(100).bytes < (1 << 20));
    CHECK(pool.take(1 << 20).data.get() == data);
}

TEST_CASE("memory pool: an empty piece may come back") {
    MemoryPool pool;
    pool.give_back({});
    CHECK(pool.take(1).data != nullptr);
}

}  // namespace
}  // namespace dlcp

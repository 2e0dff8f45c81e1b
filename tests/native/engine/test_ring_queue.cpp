// RingQueue: first in, first out.
#include <doctest/doctest.h>

#include <deque>
#include <random>

#include "engine/ring_queue.hpp"

namespace dlcp {
namespace {

TEST_CASE("ring queue: items leave in the order in which they came") {
    RingQueue<int> queue;
    CHECK(queue.empty());
    for (int i = 0; i < 3; ++i) queue.push(i);
    CHECK(queue.size() == 3);
    for (int i = 0; i < 3; ++i) {
        CHECK(queue.front() == i);
        queue.pop();
    }
    CHECK(queue.empty());
}

TEST_CASE("ring queue: growing in the middle of the ring keeps the order") {
    RingQueue<std::uint32_t> queue;
    std::deque<std::uint32_t> expected;
    std::mt19937 random(1);
    for (std::uint32_t i = 0; i < 10'000; ++i) {
        if (random() % 5 < 3) {
            queue.push(i);
            expected.push_back(i);
        } else if (!expected.empty()) {
            REQUIRE(queue.front() == expected.front());
            queue.pop();
            expected.pop_front();
        }
        REQUIRE(queue.size() == expected.size());
    }
}

TEST_CASE("ring queue: cleared, it is empty") {
    RingQueue<int> queue;
    queue.push(1);
    queue.clear();
    CHECK(queue.empty());
    queue.push(2);
    CHECK(queue.front() == 2);
}

}  // namespace
}  // namespace dlcp

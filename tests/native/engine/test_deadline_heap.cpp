// DeadlineHeap: which of many numbered things is due next.
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <utility>

#include "engine/deadline_heap.hpp"

namespace dlcp {
namespace {

TEST_CASE("deadline heap: the earliest is on top, and one that is removed is not") {
    DeadlineHeap heap;
    CHECK(heap.next() == time_never);
    heap.set(5, Time{30});
    heap.set(2, Time{10});
    CHECK(heap.top() == 2);
    CHECK(heap.at(5) == Time{30});
    heap.set(2, time_never);
    CHECK(heap.top() == 5);
    CHECK(heap.at(2) == time_never);
}

TEST_CASE("deadline heap: an entry moves both ways") {
    DeadlineHeap heap;
    heap.set(0, Time{10});
    heap.set(1, Time{20});
    heap.set(1, Time{5});
    CHECK(heap.top() == 1);
    heap.set(1, Time{50});
    CHECK(heap.top() == 0);
}

TEST_CASE("deadline heap: equal times leave in order of number") {
    DeadlineHeap heap;
    for (const std::uint32_t number : {4, 1, 3, 0, 2}) heap.set(number, Time{7});
    for (std::uint32_t number = 0; number < 5; ++number) {
        CHECK(heap.top() == number);
        heap.set(number, time_never);
    }
    CHECK(heap.empty());
}

TEST_CASE("deadline heap: random changes agree with a sorted set") {
    std::mt19937 random(1);
    DeadlineHeap heap;
    std::set<std::pair<std::int64_t, std::uint32_t>> sorted;
    for (int i = 0; i < 5000; ++i) {
        const std::uint32_t number = random() % 50;
        const Time when = random() % 4 == 0 ? time_never : Time{static_cast<std::int64_t>(random() % 1000)};
        sorted.erase({heap.at(number).value, number});
        heap.set(number, when);
        if (when != time_never) sorted.insert({when.value, number});
        REQUIRE(heap.empty() == sorted.empty());
        if (sorted.empty()) continue;
        REQUIRE(heap.next().value == sorted.begin()->first);
        REQUIRE(heap.top() == sorted.begin()->second);
    }
}

}  // namespace
}  // namespace dlcp

// The event queue against a sorted list, with and without its wheel.
#include "sim/core/event_queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "support/native/dice.hpp"

using namespace dlcp;
using namespace dlcp::sim;
using dlcp::test::Dice;

namespace {

// Events by number, with a time each. Ties are few-valued on purpose, so that `before` has its say.
struct Events {
    std::vector<std::int64_t> at_ps;

    std::uint32_t tie_of(std::uint32_t code, std::int64_t) const { return code * 2654435761U >> 29; }
    bool before(std::uint32_t a, std::uint32_t b) const { return a < b; }
    void prefetch(std::uint32_t) const {}
    std::int64_t look(std::uint32_t code, std::uint32_t& tie) const {
        tie = tie_of(code, at_ps[code]);
        return at_ps[code];
    }
    void looked() const {}
    auto order(std::uint32_t code) const { return std::tuple(at_ps[code], tie_of(code, 0), code); }
};

// Pushes and pops as a simulation does: what is pushed is never before what was popped last.
void compare(std::uint64_t seed, unsigned width_log2, unsigned buckets_log2) {
    CAPTURE(seed);
    CAPTURE(width_log2);
    CAPTURE(buckets_log2);
    Dice dice(seed);
    Events events;
    EventQueue<Events> queue(width_log2, buckets_log2);
    std::vector<std::uint32_t> waiting;  // the model
    std::int64_t now_ps = 0;
    const auto push = [&] {
        // Near, far, at this very moment, or with thousands of others.
        const std::int64_t after = dice.pick<std::int64_t>(
            {0, static_cast<std::int64_t>(dice.below(500)), static_cast<std::int64_t>(dice.below(1'000'000)),
             332'800, static_cast<std::int64_t>(dice.below(4'000'000'000'000))});
        const auto code = static_cast<std::uint32_t>(events.at_ps.size());
        events.at_ps.push_back(now_ps + after);
        waiting.push_back(code);
        queue.push(events, now_ps + after, code);
    };
    for (int i = 0; i < 400; ++i) push();
    for (int round = 0; round < 3000 && !waiting.empty(); ++round) {
        const std::int64_t limit_ps = dice.chance(0.2) ? now_ps + static_cast<std::int64_t>(dice.below(2'000'000))
                                                       : std::numeric_limits<std::int64_t>::max();
        const auto least = std::min_element(waiting.begin(), waiting.end(), [&](std::uint32_t a, std::uint32_t b) {
            return events.order(a) < events.order(b);
        });
        REQUIRE(queue.next_ps() <= events.at_ps[*least]);
        std::int64_t at_ps = -1;
        std::uint32_t code = 0;
        if (!queue.pop(events, limit_ps, at_ps, code)) {
            REQUIRE(events.at_ps[*least] >= limit_ps);
            continue;
        }
        REQUIRE(code == *least);
        REQUIRE(at_ps == events.at_ps[code]);
        REQUIRE(at_ps < limit_ps);
        now_ps = at_ps;
        waiting.erase(least);
        REQUIRE(queue.size() == waiting.size());
        for (std::uint64_t n = dice.below(3); n > 0 && events.at_ps.size() < 3000; --n) push();
    }
}

}  // namespace

TEST_CASE("event queue: events come out by time, tie and number, whatever the wheel is like") {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        compare(seed, 8, 16);
        compare(seed, 5, 6);
        compare(seed, 14, 7);
        compare(seed, 8, 0);
    }
}

TEST_CASE("event queue: thousands of events of one moment are sorted as few are") {
    Events events;
    EventQueue<Events> queue(8, 16);
    for (std::uint32_t code = 0; code < 5000; ++code) {
        events.at_ps.push_back(1000 + code % 3);
        queue.push(events, events.at_ps[code], code);
    }
    std::uint32_t last = UINT32_MAX, code = 0, popped = 0;
    for (std::int64_t at_ps = 0; queue.pop(events, INT64_MAX, at_ps, code); last = code, ++popped)
        if (last != UINT32_MAX) REQUIRE(events.order(last) < events.order(code));
    CHECK(popped == 5000);
}

TEST_CASE("radix heap: looking at the least key takes nothing from keys that come before it") {
    RadixHeap heap;
    heap.push(1'000'000'000, 1);
    CHECK(heap.least() == 1'000'000'000);
    heap.push(5, 2);
    CHECK(heap.least() == 5);
    CHECK(heap.pop().value == 2);
    heap.push(6, 3);
    CHECK(heap.pop().value == 3);
    CHECK(heap.pop().value == 1);
    CHECK(heap.empty());
}

// The search for the size that a path still carries: what starts it, what ends it.
#include <doctest/doctest.h>

#include "engine/random.hpp"
#include "engine/size_search.hpp"

using namespace dlcp;

namespace {

// Runs rounds over a path that carries `most` bytes. The size found; 0: none. `rounds` counts.
std::uint16_t search(SizeSearch& search, std::uint16_t most, std::uint32_t& rounds) {
    std::uint64_t number = 1000;
    for (rounds = 0; search.active() && rounds < 100; ++rounds) {
        while (const std::uint16_t bytes = search.next_test()) {
            search.on_test_sent();
            ++number;
            if (bytes <= most) search.on_test_acked(number, bytes);
            if (!search.active()) return 0;
        }
        if (const std::uint16_t found = search.end_test_round()) return found;
    }
    return 0;
}

}  // namespace

TEST_CASE("size search: the largest size of the ladder that passes is found") {
    for (const std::uint16_t most : {548, 600, 1200, 1471}) {
        SizeSearch s;
        s.start(1472, 1000);
        std::uint32_t rounds = 0;
        const std::uint16_t found = search(s, most, rounds);
        CHECK(found <= most);
        CHECK(found == *std::find_if(std::begin(datagram_ladder), std::end(datagram_ladder),
                                     [&](std::uint16_t size) { return size <= most; }));
        CHECK(rounds <= SizeSearch::decisive_answers + SizeSearch::ladder_rounds);
        CHECK_FALSE(s.active());
    }
}

TEST_CASE("size search: one large packet that arrives ends it") {
    SizeSearch s;
    s.start(1472, 1000);
    std::uint32_t rounds = 0;
    CHECK(search(s, 1472, rounds) == 0);
    CHECK_FALSE(s.active());
    CHECK(rounds == 0);
}

TEST_CASE("size search: loss by chance proves nothing, however many searches it starts") {
    Random random{1};
    for (const std::uint64_t loss : {50, 90, 99}) {  // %
        CAPTURE(loss);
        int shrunk = 0;
        for (int i = 0; i < 20'000; ++i) {
            SizeSearch s;
            s.start(1472, 1000);
            while (s.active() && shrunk == 0) {
                while (const std::uint16_t bytes = s.next_test()) {
                    s.on_test_sent();
                    if (random.below(100) >= loss) s.on_test_acked(1000, bytes);
                    if (!s.active()) break;
                }
                if (s.active()) shrunk += s.end_test_round() != 0;
            }
        }
        CHECK(shrunk == 0);
    }
}

TEST_CASE("size search: without any answer it ends") {
    SizeSearch s;
    s.start(1472, 1000);
    std::uint32_t rounds = 0;
    CHECK(search(s, 0, rounds) == 0);
    CHECK(rounds == SizeSearch::most_silent_rounds);
}

TEST_CASE("size search: the least size is not tested") {
    SizeSearch s;
    s.start(least_datagram, 0);
    CHECK_FALSE(s.active());
}

TEST_CASE("size search: losses one after the other of packets larger than all that pass are suspicious") {
    SizeSearch s;
    std::uint64_t next = 10;
    s.on_acked(1, 300, false);
    for (std::uint32_t i = 1; i <= SizeSearch::suspicious_failures; ++i) {
        // A burst: it counts once.
        for (std::uint64_t n = next; n < next + 5; ++n) s.on_lost(n, 1472, false, next + 5);
        next += 5;
        CHECK(s.on_answer() == (i == SizeSearch::suspicious_failures));
        s.on_acked(next++, 300, false);
        s.end_round(next);
    }
}

TEST_CASE("size search: losses of packets that left alone are suspicious while runs pass") {
    SizeSearch s;
    for (std::uint32_t i = 1; i <= SizeSearch::suspicious_failures; ++i) {
        s.on_lost(4 * i, 1472, true, 4 * i + 1);
        s.on_acked(4 * i + 2, 1472, false);
        CHECK(s.on_answer() == (i == SizeSearch::suspicious_failures));
        s.end_round(4 * i + 3);
    }
}

TEST_CASE("size search: losses are not suspicious while as large packets pass") {
    SizeSearch s;
    for (std::uint64_t n = 0; n < 100; n += 4) {
        s.on_lost(n, 1472, false, n + 2);
        CHECK_FALSE(s.on_answer());
        s.on_acked(n + 3, 1472, false);
        s.end_round(n + 4);
    }
}

TEST_CASE("size search: silence is not suspicious") {
    SizeSearch s;
    for (std::uint64_t n = 0; n < 100; ++n) s.on_lost(n, 1472, false, n + 1);
    CHECK_FALSE(s.on_answer());
}

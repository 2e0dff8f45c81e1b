// The longest of late, forgotten slowly.
#include "engine/lateness.hpp"

#include <doctest/doctest.h>

using namespace dlcp;

TEST_CASE("lateness: the longest counts, half after 256 times its length, and no more than a second") {
    Lateness lateness;
    const Time begin{5'000};
    CHECK(lateness.at(begin) == Duration{0});
    lateness.note(begin, milliseconds(4));
    lateness.note(begin, milliseconds(2));
    CHECK(lateness.at(begin + milliseconds(1023)) == milliseconds(4));
    CHECK(lateness.at(begin + milliseconds(1024)) == milliseconds(2));
    // What is left of the first is still longer.
    lateness.note(begin + milliseconds(1024), milliseconds(1));
    CHECK(lateness.at(begin + milliseconds(1024)) == milliseconds(2));
    CHECK(lateness.at(begin + seconds(3600)) == Duration{0});
    lateness.note(begin, seconds(10));
    CHECK(lateness.at(begin) == seconds(1));
}

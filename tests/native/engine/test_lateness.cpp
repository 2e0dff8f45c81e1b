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
    // Less than what is left of it does not renew it.
    lateness.note(begin + milliseconds(1024), milliseconds(1));
    CHECK(lateness.at(begin + milliseconds(1024)) == milliseconds(2));
    CHECK(lateness.at(begin + milliseconds(2048)) == milliseconds(1));
    const Time later = begin + seconds(3600);
    CHECK(lateness.at(later) == Duration{0});
    lateness.note(later, seconds(10));
    CHECK(lateness.at(later) == seconds(1));
}

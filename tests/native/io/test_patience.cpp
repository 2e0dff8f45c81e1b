// Patience: how long a caller looks before it sleeps follows how long its sleeps were.
#include <doctest/doctest.h>

#include "io/patience.hpp"

namespace dlcp {
namespace {

// How long it looks from `now` on, in steps of a microsecond.
Duration looks_for(Patience& patience, Time now) {
    const Time begin = now;
    while (patience.look_again(now)) now = now + microseconds(1);
    return now - begin;
}

}  // namespace

TEST_CASE("patience: sleeps at once as long as no sleep was short") {
    Patience patience;
    CHECK(looks_for(patience, Time{0}) == Duration{0});
    patience.slept(milliseconds(1));
    CHECK(looks_for(patience, Time{1'000'000}) == Duration{0});
}

TEST_CASE("patience: short sleeps make it look longer, up to 50 us; a long one halves that") {
    Patience patience;
    Time now{0};
    Duration before{0};
    for (int i = 0; i < 4; ++i) {
        looks_for(patience, now);
        patience.slept(microseconds(10));
        now = now + milliseconds(1);
        const Duration looked = looks_for(patience, now);
        CHECK(looked > before);
        before = looked;
        patience.was_busy();
    }
    for (int i = 0; i < 10; ++i) patience.slept(microseconds(10));
    CHECK(looks_for(patience, now) == microseconds(50));
    patience.slept(milliseconds(1));
    CHECK(looks_for(patience, now) == microseconds(25));
}

TEST_CASE("patience: work begins the count anew") {
    Patience patience;
    for (int i = 0; i < 10; ++i) patience.slept(microseconds(10));
    CHECK(patience.look_again(Time{0}));
    CHECK_FALSE(patience.look_again(Time{0} + microseconds(60)));
    patience.was_busy();
    CHECK(patience.look_again(Time{0} + microseconds(60)));
}

TEST_CASE("patience: a clock that stands still while it looks is a virtual one, which moves in sleep alone") {
    Patience patience;
    for (int i = 0; i < 10; ++i) patience.slept(microseconds(10));
    int looks = 0;
    while (patience.look_again(Time{7})) ++looks;
    CHECK(looks == 2);
    patience.was_busy();
    CHECK_FALSE(patience.look_again(Time{9}));
}

}  // namespace dlcp

// WaitHabit: starts that were waited for soon make the next one expect its wait.
#include "io/wait_habit.hpp"

#include <doctest/doctest.h>

namespace dlcp {
namespace {

// Starts until one expects its wait, each waited for after `pause`; at most `most`. How many that took.
int starts_until_expected(WaitHabit& habit, Time& now, Duration pause, int most = 100) {
    for (int count = 0; count < most; ++count) {
        if (habit.starts(now, true)) return count;
        habit.waits(now + pause);
        now = now + milliseconds(1);
    }
    return most;
}

}  // namespace

TEST_CASE("wait habit: it takes sixteen starts in a row that are waited for soon") {
    WaitHabit habit;
    Time now{0};
    CHECK(starts_until_expected(habit, now, microseconds(100)) == 16);
}

TEST_CASE("wait habit: callers that compute before they wait have none") {
    WaitHabit habit;
    Time now{0};
    CHECK(starts_until_expected(habit, now, microseconds(101)) == 100);
}

TEST_CASE("wait habit: one late wait, or one start that the I/O thread finds, ends it") {
    for (const bool late : {true, false}) {
        WaitHabit habit;
        Time now{0};
        starts_until_expected(habit, now, microseconds(10));
        if (late)
            habit.waits(now + milliseconds(1));
        else
            habit.was_left();
        CHECK(starts_until_expected(habit, now, microseconds(10)) == 16);
    }
}

TEST_CASE("wait habit: of several starts at once the first one counts") {
    WaitHabit habit;
    Time now{0};
    starts_until_expected(habit, now, microseconds(10));
    habit.starts(now + microseconds(90), false);
    habit.waits(now + microseconds(150));
    CHECK_FALSE(habit.starts(now + milliseconds(1), true));
}

TEST_CASE("wait habit: what was over before anybody waited counts for nothing") {
    WaitHabit habit;
    Time now{0};
    starts_until_expected(habit, now, microseconds(10));
    now = now + milliseconds(1);  // the last one was never waited for
    CHECK(habit.starts(now, true));
    habit.waits(now + microseconds(10));
    CHECK(habit.starts(now + milliseconds(1), true));
}

}  // namespace dlcp

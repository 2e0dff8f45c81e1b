// How long a caller that waits looks again and again before it sleeps.
//
// Waking a sleeper takes tens of microseconds, most of all where a virtual processor went idle meanwhile: as much as the
// exchange of a short message. So a caller whose sleeps were short looks for a while first; one whose sleeps were long
// stops looking. Between two looks the processor is offered to others.
#pragma once

#include <sched.h>

#include <algorithm>

#include "engine/units.hpp"

namespace dlcp {

class Patience {
public:
    // Nothing to do now. True: look again. False: sleep.
    bool look_again(Time now) {
        if (idle_since_ == busy) {
            idle_since_ = now;
            looks_ = 0;
        }
        // A clock that stands still while we look is a virtual one: it moves in the driver's wait alone.
        if (++looks_ > 2 && now == idle_since_) real_clock_ = false;
        return real_clock_ && now - idle_since_ < limit_;
    }
    void was_busy() { idle_since_ = busy; }
    // A sleep is over that began after look_again() had said so.
    void slept(Duration time) {
        limit_ = time < short_sleep ? std::min(limit_ * 2 + microseconds(4), longest) : limit_ / 2;
        idle_since_ = busy;
    }
    static void pause() { sched_yield(); }

private:
    static constexpr Time busy{INT64_MIN};
    // Longer than a wake-up on an idle machine; shorter than what another network's round trip takes.
    static constexpr Duration short_sleep = microseconds(60);
    static constexpr Duration longest = microseconds(50);

    Time idle_since_ = busy;
    int looks_ = 0;  // since then
    bool real_clock_ = true;
    Duration limit_{0};
};

}  // namespace dlcp

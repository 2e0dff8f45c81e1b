// Whether callers wait at once for what they start, going by what they did before.
//
// Calling the I/O thread costs switches between threads, which a caller that waits at once pays in vain: most of what a
// short message costs. So after some starts in a row that were waited for soon, the next one does not call it. If no wait
// comes then, the I/O thread finds what is under way at the end of its linger, and the habit is over.
#pragma once

#include <algorithm>

#include "engine/units.hpp"

namespace dlcp {

class WaitHabit {
public:
    // Something starts; `alone`: nothing else was under way. True: its caller is about to wait.
    bool starts(Time now, bool alone) {
        if (alone || !started_) since_ = now;
        started_ = true;
        return in_a_row_ == needed;
    }
    // A caller waits.
    void waits(Time now) {
        if (!started_) return;
        started_ = false;
        in_a_row_ = now - since_ <= soon ? std::min(in_a_row_ + 1, needed) : 0;
    }
    // The I/O thread finds something under way.
    void was_left() {
        started_ = false;
        in_a_row_ = 0;
    }

private:
    // A habit is soon lost and not soon gained: to be wrong costs a linger, to be right a fiftieth of that.
    static constexpr int needed = 16;
    // What a program does between start and wait where it does nothing else; computing takes longer.
    static constexpr Duration soon = microseconds(100);

    bool started_ = false;  // and not waited for yet
    Time since_{0};
    int in_a_row_ = 0;
};

}  // namespace dlcp

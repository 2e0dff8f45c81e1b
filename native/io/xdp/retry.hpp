// What the kernel still holds for a process that has just ended is let go a little later, by a worker of its own: until
// then it says "busy".
#pragma once

#include <errno.h>
#include <time.h>

namespace dlcp::xdp {

// Calls `attempt` until it returns another thing than -EBUSY, for half a second at most.
template <class Attempt>
int retry_while_busy(Attempt attempt) {
    constexpr timespec pause = {0, 20'000'000};
    int result = attempt();
    for (int tries = 0; result == -EBUSY && tries < 25; ++tries) {
        nanosleep(&pause, nullptr);
        result = attempt();
    }
    return result;
}

}  // namespace dlcp::xdp

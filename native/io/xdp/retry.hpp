// What the kernel still holds for a driver that was closed, or for a process that has just ended, is let go a little
// later. A worker of the kernel's own does it, and needs the lock of all changes to interfaces (xp_release_deferred in
// net/xdp/xsk_buff_pool.c). Until then the kernel says "busy".
#pragma once

#include <errno.h>
#include <time.h>

#include <cstdint>

#include "io/clock.hpp"

namespace dlcp::xdp {

// Calls `attempt` until it returns another thing than -EBUSY, for five seconds at most: half a second was not enough on
// a machine of two cores that was busy with namespaces.
template <class Attempt>
int retry_while_busy(Attempt attempt) {
    constexpr std::int64_t patience_ns = 5'000'000'000;
    constexpr timespec pause = {0, 20'000'000};
    const std::int64_t until_ns = monotonic_ns() + patience_ns;
    int result = attempt();
    while (result == -EBUSY && monotonic_ns() < until_ns) {
        nanosleep(&pause, nullptr);
        result = attempt();
    }
    return result;
}

}  // namespace dlcp::xdp

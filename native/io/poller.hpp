// Sleeping until a socket is readable or another thread calls wake(): epoll and an eventfd.
//
// wake() is one atomic exchange unless the owner really sleeps, so that commands given to a busy endpoint cost no
// system call. A wake() that comes while the owner is awake makes its next wait() return at once: none is lost.
#pragma once

#include <atomic>
#include <cstdint>

#include "io/descriptor.hpp"
#include "io/error_text.hpp"

namespace dlcp {

class Poller {
public:
    int open(ErrorText error);
    // `index` 0..63: the bit under which readable sockets are reported.
    int add(int descriptor, unsigned index, ErrorText error);
    // The `watch` and `unwatch` of io_table.h: descriptors of others, told of through a flag of theirs.
    int watch(int descriptor, std::uint8_t* readable);
    void unwatch(int descriptor);

    // Readable sockets now, one bit each.
    std::uint64_t poll();
    // Sleeps until one is readable, wake() or timeout_ns (<0: none). Returns the readable sockets.
    std::uint64_t wait(std::int64_t timeout_ns);
    // Any thread.
    void wake();

private:
    Descriptor epoll_;
    Descriptor event_;                  // eventfd
    bool has_pwait2_ = true;            // epoll_pwait2 is not known to be missing (Linux 5.11)
    std::atomic<bool> pending_{false};  // wake() was called and no wait() has returned for it yet
    std::atomic<bool> asleep_{false};   // the owner is, or is about to be, in a system call that only event_ ends
};

}  // namespace dlcp

#include "io/poller.hpp"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441  // the same on all architectures, as every call since 424
#endif

namespace dlcp {

namespace {

// An event's data is a socket's index, this, or the address of a watcher's flag, which is larger than either.
constexpr std::uint64_t wake_index = 64;
constexpr int max_events = 65;  // 64 sockets and the eventfd; what does not fit is there the next time

timespec to_timespec(std::int64_t ns) {
    return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

std::uint64_t readable_sockets(const epoll_event* events, int count) {
    std::uint64_t ready = 0;
    for (int i = 0; i < count; ++i) {
        if (events[i].data.u64 < wake_index)
            ready |= std::uint64_t{1} << events[i].data.u64;
        else if (events[i].data.u64 > wake_index)
            *static_cast<std::uint8_t*>(events[i].data.ptr) = 1;
    }
    return ready;
}

}  // namespace

int Poller::open(ErrorText error) {
    epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
    event_ = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!epoll_ || !event_) {
        return error.fail(errno, "no file descriptor for epoll or eventfd (%s): raise the limit (ulimit -n)",
                          strerror(errno));
    }
    return add(event_.number(), wake_index, error);
}

// Level-triggered: a receive that stopped early, for whatever reason, is reported again.
int Poller::add(int descriptor, unsigned index, ErrorText error) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = index;
    if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0) return 0;
    return error.fail(errno, "cannot watch a socket with epoll: %s", strerror(errno));
}

int Poller::watch(int descriptor, std::uint8_t* readable) {
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
    event.data.u64 = 0;
    event.data.ptr = readable;
    return epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0 ? 0 : -errno;
}

void Poller::unwatch(int descriptor) { epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr); }

std::uint64_t Poller::poll() {
    epoll_event events[max_events];
    return readable_sockets(events, epoll_wait(epoll_.number(), events, max_events, 0));
}

std::uint64_t Poller::wait(std::int64_t timeout_ns) {
    // Announce the sleep, then look for a wake; wake() announces itself, then looks for a sleeper. In the single
    // order of these sequentially consistent operations at least one of the two sees the other.
    asleep_.store(true);
    if (pending_.exchange(false)) {
        asleep_.store(false);
        return 0;
    }
    epoll_event events[max_events];
    int count = -1;
    if (has_pwait2_) {
        const timespec timeout = to_timespec(timeout_ns < 0 ? 0 : timeout_ns);
        count = static_cast<int>(syscall(SYS_epoll_pwait2, epoll_.number(), events, max_events,
                                         timeout_ns < 0 ? nullptr : &timeout, nullptr, std::size_t{0}));
        // EPERM: a container's filter that does not know the call.
        if (count < 0 && (errno == ENOSYS || errno == EPERM)) has_pwait2_ = false;
    }
    if (!has_pwait2_) {
        const timespec timeout = to_timespec(timeout_ns < 0 ? 0 : timeout_ns);
        pollfd descriptor = {epoll_.number(), POLLIN, 0};
        count = ppoll(&descriptor, 1, timeout_ns < 0 ? nullptr : &timeout, nullptr);
        if (count > 0) count = epoll_wait(epoll_.number(), events, max_events, 0);
    }
    asleep_.store(false);
    for (int i = 0; i < count; ++i) {
        if (events[i].data.u64 != wake_index) continue;
        std::uint64_t wakes;
        [[maybe_unused]] const ssize_t read_bytes = read(event_.number(), &wakes, sizeof wakes);
    }
    pending_.exchange(false);  // not a plain store: it must see what the waker wrote before
    return readable_sockets(events, count);
}

void Poller::wake() {
    if (pending_.exchange(true)) return;  // an earlier wake() is still on its way
    if (!asleep_.load()) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written_bytes = write(event_.number(), &one, sizeof one);
}

}  // namespace dlcp

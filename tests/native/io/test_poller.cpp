// Poller: which sockets are readable, wakes that are never lost, and watched descriptors.
#include <doctest/doctest.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>

#include "io/clock.hpp"
#include "io/poller.hpp"

namespace dlcp {
namespace {

struct Open : Poller {
    Open() { REQUIRE(open({nullptr, 0}) == 0); }
};

Descriptor make_event() {
    Descriptor out(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    REQUIRE(out);
    return out;
}

void ring(const Descriptor& event) { REQUIRE(eventfd_write(event.number(), 1) == 0); }

}  // namespace

TEST_CASE("poller: readable sockets are bits, level-triggered") {
    Open poller;
    const Descriptor first = make_event(), last = make_event();
    REQUIRE(poller.add(first.number(), 0, {nullptr, 0}) == 0);
    REQUIRE(poller.add(last.number(), 63, {nullptr, 0}) == 0);
    CHECK(poller.poll() == 0);
    ring(first);
    ring(last);
    constexpr std::uint64_t both = std::uint64_t{1} << 63 | 1;
    CHECK(poller.poll() == both);
    CHECK(poller.wait(-1) == both);  // not read meanwhile
}

TEST_CASE("poller: a watched descriptor sets its flag once per arrival, until it is unwatched") {
    Open poller;
    const Descriptor event = make_event();
    std::uint8_t readable = 0;
    REQUIRE(poller.watch(event.number(), &readable) == 0);
    ring(event);
    CHECK(poller.wait(-1) == 0);
    CHECK(readable == 1);
    readable = 0;
    CHECK(poller.poll() == 0);
    CHECK(readable == 0);  // edge-triggered
    ring(event);
    poller.poll();
    CHECK(readable == 1);
    poller.unwatch(event.number());
    readable = 0;
    ring(event);
    poller.poll();
    CHECK(readable == 0);
    CHECK(poller.watch(-1, &readable) == -EBADF);
}

TEST_CASE("poller: a wake before a wait ends that wait, and no second one") {
    Open poller;
    poller.wake();
    poller.wake();
    CHECK(poller.wait(-1) == 0);
    const std::int64_t begin_ns = monotonic_ns();
    CHECK(poller.wait(1'000'000) == 0);
    CHECK(monotonic_ns() - begin_ns >= 1'000'000);
}

TEST_CASE("poller: a wake from another thread ends a wait, at whatever moment it comes") {
    Open poller;
    for (int i = 0; i < 200; ++i) {
        std::thread other([&] { poller.wake(); });
        CHECK(poller.wait(-1) == 0);
        other.join();
    }
}

}  // namespace dlcp

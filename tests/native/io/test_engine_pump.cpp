// EnginePump: a round of the engine over a driver, and when it sleeps.
#include "io/engine_pump.hpp"

#include <doctest/doctest.h>

#include "scripted_driver.hpp"

namespace dlcp {

using test::ScriptedPump;

namespace {

dlcp_address somewhere(std::uint8_t host) {
    dlcp_address out{};
    out.bytes[0] = host;
    out.length = 1;
    return out;
}

}  // namespace

TEST_CASE("engine pump: time never goes back, whatever the driver's clock says") {
    ScriptedPump test;
    CHECK(test.pump.now() == Time{1'000'000});
    test.driver.clock_ns = 999'999;
    CHECK(test.pump.now() == Time{1'000'000});
    test.driver.clock_ns = 1'000'001;
    CHECK(test.pump.now() == Time{1'000'001});
    CHECK(test.pump.last_now() == Time{1'000'001});
}

TEST_CASE("engine pump: with nothing to do a round is over, and sleep lasts until something comes") {
    ScriptedPump test;
    EnginePump::Lock lock(test.mutex);
    CHECK(test.pump.round(lock));
    test.pump.sleep(lock, real_never);
    CHECK(test.driver.waits == std::vector<std::int64_t>{-1});
    CHECK(test.pump.sleeps() == 1);
    CHECK(lock.owns_lock());
}

TEST_CASE("engine pump: the driver sleeps with the mutex free, until the engine's deadline at most") {
    ScriptedPump test;
    EnginePump::Lock lock(test.mutex);
    REQUIRE(test.engine.connect(test.pump.now(), 1, somewhere(1)).error == CommandError::none);
    while (!test.pump.round(lock)) {}
    bool was_free = false;
    test.driver.in_wait = [&] {
        was_free = test.mutex.try_lock();
        if (was_free) test.mutex.unlock();
    };
    const Duration left = test.pump.next_deadline() - test.pump.now();
    test.pump.sleep(lock, real_never);
    CHECK(was_free);
    REQUIRE(test.driver.waits.size() == 1);
    CHECK(test.driver.waits[0] == left.value);
    // At the deadline the engine's timer runs: it says hello again.
    const std::size_t before = test.driver.sent_to.size();
    test.driver.clock_ns += left.value;
    while (!test.pump.round(lock)) {}
    CHECK(test.driver.sent_to.size() > before);
}

TEST_CASE("engine pump: the driver is given copies of addresses, equal neighbours the same one") {
    ScriptedPump test;
    EnginePump::Lock lock(test.mutex);
    for (std::uint8_t rank = 1; rank <= 2; ++rank)
        REQUIRE(test.engine.connect(test.pump.now(), rank, somewhere(rank)).error == CommandError::none);
    while (!test.pump.round(lock)) {}
    REQUIRE(test.driver.sent_to.size() >= 2);
    CHECK(test.driver.sent_to[0] != test.driver.sent_to[1]);
    for (const dlcp_address* address : test.driver.sent_to)
        for (std::uint32_t rank = 1; rank <= 2; ++rank)
            CHECK(address != test.engine.address_of(*test.engine.find_peer(rank)));
}

TEST_CASE("engine pump: without a free buffer it looks again after a millisecond at most") {
    ScriptedPump test;
    EnginePump::Lock lock(test.mutex);
    test.driver.buffers = 0;
    REQUIRE(test.engine.connect(test.pump.now(), 1, somewhere(1)).error == CommandError::none);
    CHECK(test.pump.round(lock));
    test.pump.sleep(lock, real_never);
    REQUIRE(test.driver.waits.size() <= 1);
    for (const std::int64_t timeout_ns : test.driver.waits) {
        CHECK(timeout_ns >= 0);
        CHECK(timeout_ns <= 1'000'000);
    }
    test.driver.buffers = 4;
    while (!test.pump.round(lock)) {}
    CHECK_FALSE(test.driver.sent_to.empty());
}

TEST_CASE("engine pump: an interrupt before sleep keeps it from sleeping, until the next round") {
    ScriptedPump test;
    EnginePump::Lock lock(test.mutex);
    CHECK(test.pump.round(lock));
    test.pump.interrupt();
    test.pump.sleep(lock, real_never);
    CHECK(test.driver.waits.empty());
    CHECK(test.driver.wakes == 0);
    CHECK(test.pump.round(lock));
    test.pump.sleep(lock, real_never);
    CHECK(test.driver.waits.size() == 1);
}

TEST_CASE("engine pump: interrupts during sleep wake the driver once") {
    ScriptedPump test;
    EnginePump::Lock lock(test.mutex);
    CHECK(test.pump.round(lock));
    test.driver.in_wait = [&] {
        const std::lock_guard guard(test.mutex);
        test.pump.interrupt();
        test.pump.interrupt();
    };
    test.pump.sleep(lock, real_never);
    CHECK(test.driver.wakes == 1);
}

}  // namespace dlcp

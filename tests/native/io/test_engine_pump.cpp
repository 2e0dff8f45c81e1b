// EnginePump: a round of the engine over a driver, and when it sleeps.
#include "io/engine_pump.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "native/engine/captured_pair.hpp"
#include "native/engine/pair_scenario.hpp"
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

// A pump over an engine that is in the middle of a long message, which comes at 1 Gbit/s. The driver's clock all but stands
// still: a nap goes by the kernel's.
struct NappingPump {
    NappingPump() {
        pump.open(test::scripted_table, reinterpret_cast<dlcp_io*>(&driver), 4);
        pump.set_engine(*pair.endpoints[0], executor);
        pair.talk(0);
        SendCommand send;
        send.peer = pair.peers[1];
        send.tag = 5;
        send.payload = payload.data();
        send.message_bytes = static_cast<std::uint32_t>(payload.size());
        REQUIRE(pair.endpoints[1]->send(pair.now, send));
        ReceiveCommand receive;
        receive.peer = pair.peers[0];
        receive.tag = 5;
        receive.buffer = buffer.data();
        receive.capacity_bytes = static_cast<std::uint32_t>(buffer.size());
        REQUIRE(pair.endpoints[0]->receive(pair.now, receive));
        std::deque<test::Datagram> on_the_way;
        for (int packets = 0; packets < 1000; ++packets) {
            for (test::Datagram& acknowledgement : pair.take(0)) pair.give(1, std::move(acknowledgement));
            for (test::Datagram& data : pair.take(1)) on_the_way.push_back(std::move(data));
            pair.now = pair.now + nanoseconds(11'900);
            if (on_the_way.empty()) continue;
            pair.give(0, std::move(on_the_way.front()));
            on_the_way.pop_front();
        }
        pair.endpoints[0]->handle_timer(pair.now);
        pair.take(0);
        REQUIRE(pump.next_deadline() > pair.now);
        driver.clock_ns = pair.now.value;
        driver.tick_ns = 1;
    }

    test::Captured pair{test::plain_config()};
    std::vector<std::uint8_t> payload = std::vector<std::uint8_t>(8'000'000), buffer = payload;
    test::ScriptedDriver driver;
    CollectiveExecutor executor{*pair.endpoints[0]};
    EnginePump pump;
    std::mutex mutex;
};

}  // namespace

TEST_CASE("engine pump: in the middle of a long message it naps, outside the driver, with the mutex free") {
    NappingPump test;
    EnginePump::Lock lock(test.mutex);
    const RealTime begin = RealClock::now();
    CHECK(test.pump.nap(lock, real_never));
    CHECK(RealClock::now() - begin >= std::chrono::microseconds(200));
    CHECK(lock.owns_lock());
    CHECK(test.pump.sleeps() == 1);
    CHECK(test.driver.waits.empty());
    // Not past what the caller waits for, nor when the packets need buffers or somebody has called.
    CHECK_FALSE(test.pump.nap(lock, RealClock::now()));
    test.pump.interrupt();
    CHECK_FALSE(test.pump.nap(lock, real_never));
    CHECK(test.pump.sleeps() == 1);
    CHECK(test.driver.wakes == 0);
}

TEST_CASE(
    "engine pump: whoever interrupts a nap finds the mutex free, and no other follows before the next round") {
    NappingPump test;
    // Naps until some thread has found it in one: the mutex is free in naps alone.
    std::thread caller;
    bool called = false;
    {
        EnginePump::Lock lock(test.mutex);
        caller = std::thread([&] {
            const std::lock_guard guard(test.mutex);
            called = true;
            test.pump.interrupt();
        });
        bool napped = true;
        while (!called && napped) napped = test.pump.nap(lock, real_never);
        CHECK(napped);
        CHECK_FALSE(test.pump.nap(lock, real_never));  // until the next round
    }
    caller.join();
}

TEST_CASE("engine pump: it never naps by a clock that moves in the driver's wait alone") {
    NappingPump test;
    test.driver.tick_ns = 0;
    EnginePump::Lock lock(test.mutex);
    CHECK(test.pump.nap(lock, real_never));  // which shows that the clock stands
    CHECK_FALSE(test.pump.nap(lock, real_never));
    CHECK(test.pump.sleeps() == 1);
}

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

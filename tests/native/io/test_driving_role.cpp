// DrivingRole: one thread drives at a time, and the role goes on when it leaves.
#include "io/driving_role.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "scripted_driver.hpp"

namespace dlcp {
namespace {

using Lock = DrivingRole::Lock;

struct Role : test::ScriptedPump {
    DrivingRole role{pump, Duration{0}};

    // Drives until stop(), giving the mutex up in between.
    template <class Stop>
    static void drive(Lock& lock, Stop&& stop) {
        while (!stop()) {
            lock.unlock();
            std::this_thread::yield();
            lock.lock();
        }
    }
    // Another thread's: until `reached` holds.
    template <class Reached>
    void await(Reached&& reached) {
        for (;;) {
            const Lock lock(mutex);
            if (reached()) return;
        }
    }
};

}  // namespace

TEST_CASE("driving role: a caller whose wait is over already does not drive") {
    Role test;
    Lock lock(test.mutex);
    bool drove = false;
    test.role.wait_until(
        lock, [] { return true; }, real_never, nullptr, [&](Lock&, auto&&) { drove = true; });
    CHECK_FALSE(drove);
    CHECK(test.role.changes() == 0);
}

TEST_CASE("driving role: a caller that finds the role free drives until it is done, and leaves it free") {
    Role test;
    Lock lock(test.mutex);
    int rounds = 0;
    test.role.wait_until(
        lock, [&] { return rounds == 3; }, real_never, nullptr,
        [&](Lock&, auto&& stop) {
            CHECK(test.role.taken());
            while (!stop()) ++rounds;
        });
    CHECK(rounds == 3);
    CHECK_FALSE(test.role.taken());
    CHECK(test.role.changes() == 1);
}

TEST_CASE("driving role: the next waiting caller is given the role when the leader leaves") {
    Role test;
    bool leader_done = false, follower_done = false, leads = false, follows = false;
    const auto caller = [&](bool& done, bool& drives) {
        Lock lock(test.mutex);
        test.role.wait_until(
            lock, [&] { return done; }, real_never, &done,
            [&](Lock& held, auto&& stop) {
                drives = true;
                Role::drive(held, stop);
            });
    };
    std::thread leader([&] { caller(leader_done, leads); });
    test.await([&] { return leads; });
    std::thread follower([&] { caller(follower_done, follows); });
    test.await([&] {
        leader_done = true;
        return follows;
    });
    test.await([&] { return follower_done = true; });
    leader.join();
    follower.join();
    CHECK_FALSE(test.role.taken());
    CHECK(test.role.changes() == 2);
}

TEST_CASE("driving role: a caller that needs the driver for itself comes before one that waits") {
    Role test;
    bool done = false, drives = false;
    std::thread waiting([&] {
        Lock lock(test.mutex);
        test.role.wait_until(
            lock, [&] { return done; }, real_never, nullptr,
            [&](Lock& held, auto&& stop) {
                drives = true;
                Role::drive(held, stop);
            });
    });
    test.await([&] { return drives; });
    {
        Lock lock(test.mutex);
        test.role.take(lock);  // the driving caller sees claimed() and leaves
        CHECK(test.role.taken());
        done = true;
        test.role.leave();
    }
    waiting.join();
    CHECK_FALSE(test.role.taken());
}

TEST_CASE("driving role: the I/O thread drives while no caller waits, and ends when it is to stop") {
    Role test;
    bool stop = false, serves = false;
    std::thread io([&] {
        Lock lock(test.mutex);
        test.role.serve(
            lock, [&] { return stop; },
            [&](Lock& held, auto&& leave) {
                serves = true;
                Role::drive(held, leave);
                serves = false;
            },
            [] { return true; }, [] { return Time{0}; });
    });
    test.await([&] { return serves; });
    int looks = 0, io_was_there = 0;
    {
        // One call after the other: the I/O thread is told of the first one's end when the second has begun.
        Lock lock(test.mutex);
        for (const int until : {20, 2000}) {
            test.role.wait_until(
                lock, [&] { return looks == until; }, real_never, nullptr,
                [&](Lock& held, auto&& leave) {
                    Role::drive(held, [&] {
                        ++looks;
                        io_was_there += serves || !test.role.taken();
                        return leave();
                    });
                });
        }
    }
    CHECK(looks == 2000);
    CHECK(io_was_there == 0);
    test.await([&] { return serves; });  // it takes the role back
    {
        const Lock lock(test.mutex);
        stop = true;
        test.role.notify_all();
    }
    io.join();
}

TEST_CASE("driving role: the I/O thread stays away from a caller's pauses until something is under way") {
    Role test;
    DrivingRole role(test.pump, seconds(3600));
    bool stop = false, serves = false, rests = true;
    int looks = 0;
    {
        Lock lock(test.mutex);
        role.take_free();
        role.leave_warm();
    }
    std::thread io([&] {
        Lock lock(test.mutex);
        role.serve(
            lock, [&] { return stop; },
            [&](Lock& held, auto&& leave) {
                serves = true;
                Role::drive(held, leave);
            },
            [&] {
                ++looks;
                return rests;
            },
            [] { return Time{0}; });
    });
    test.await([&] { return looks > 0; });
    {
        const Lock lock(test.mutex);
        CHECK_FALSE(serves);  // though it is due
        rests = false;
        role.call_io();
    }
    test.await([&] { return serves; });
    {
        const Lock lock(test.mutex);
        stop = true;
    }
    io.join();
}

}  // namespace dlcp

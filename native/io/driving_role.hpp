// Which thread drives: one at a time has the role, the others sleep until they are done or are given it.
//
// At rest the I/O thread has it. A caller that waits for something takes it and drives until that has come (leader);
// other callers sleep meanwhile (followers), and one of them is given the role when the leader leaves. A caller that
// needs the driver for itself for a moment comes before all of them.
//
// When no caller wants it, the I/O thread takes it back. If something is under way, that is a moment later, and who leaves
// calls it. If nothing is, it stays away until nobody has driven for `linger`, whatever is due: who calls again and again
// finds the role free each time, and pays no switch between threads. Peers that wait meanwhile wait for the next call, or
// for an acknowledgement that is late by that time.
//
// Everything is called with the runtime's mutex held. "Until" is in real time.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>

#include "io/engine_pump.hpp"

namespace dlcp {

class DrivingRole {
public:
    using Lock = EnginePump::Lock;

    DrivingRole(EnginePump& pump, Duration linger) : pump_(pump), linger_(linger) {}

    // Whether somebody has the role, or is about to take it for himself.
    bool taken() const { return driving_ || exclusive_ > 0; }
    // What a caller that drives must look at: somebody wants the role for himself.
    bool claimed() const { return exclusive_ > 0; }
    std::uint64_t changes() const { return changes_; }

    // Returns when `done()` or at `until`. While it has the role it calls drive(lock, stop), which must return
    // once stop() is true or `until` has passed. `subject` is what notify() names; nullptr: anything.
    template <class Done, class Drive>
    void wait_until(Lock& lock, Done&& done, RealTime until, const void* subject, Drive&& drive) {
        Waiter waiter{subject, {}};
        ++callers_;
        while (!done() && !has_passed(until)) {
            if (!taken()) {
                driving_ = true;
                ++changes_;
                drive(lock, [&] { return done() || claimed(); });
                leave_warm();
            } else {
                interrupt();
                waiters_.push_back(&waiter);
                sleep_until(waiter.condition, lock, until);
                waiters_.remove(&waiter);
            }
        }
        --callers_;
        pass();  // it may have been offered to this thread while it was leaving
    }

    // Takes the role for a driver call or two, before any waiter.
    void take(Lock& lock) {
        ++exclusive_;
        interrupt();
        claims_.wait(lock, [&] { return !driving_; });
        --exclusive_;
        driving_ = true;
    }
    // Takes it without waiting. Nobody may have it.
    void take_free() { driving_ = true; }

    void leave() {
        driving_ = false;
        pass();
    }
    // A caller drove, and is likely to come back soon.
    void leave_warm() {
        left_ = pump_.now();
        leave();
    }

    // Has whoever drives look again.
    void interrupt() {
        if (driving_) pump_.interrupt();
    }

    // Something is under way that no caller waits for.
    void call_io() { io_.notify_one(); }
    // The I/O thread may stay away for all of linger_ though nobody drives.
    bool io_rests() const { return io_rests_; }

    // Wakes the callers that wait for `subject` or for anything; nullptr: those that wait for anything.
    void notify(const void* subject) {
        for (Waiter* waiter : waiters_)
            if (waiter->subject == subject || waiter->subject == nullptr) waiter->condition.notify_one();
    }
    void notify_all() {
        for (Waiter* waiter : waiters_) waiter->condition.notify_one();
        io_.notify_all();
    }

    // The I/O thread's life, until `stop()`; drive as above. `at_rest()`: nothing is under way. `due()`: when the engine
    // is next due.
    template <class Stop, class Drive, class AtRest, class Due>
    void serve(Lock& lock, Stop&& stop, Drive&& drive, AtRest&& at_rest, Due&& due) {
        std::uint64_t seen = 0;
        while (!stop()) {
            const bool called = taken() || callers_ > 0;
            if (called && (changes_ == seen || linger_ <= Duration{0})) {  // one long call: who leaves tells
                io_parked_ = true;
                io_.wait(lock);
                io_parked_ = false;
                continue;
            }
            seen = changes_;
            io_rests_ = called || at_rest();
            if (const Duration wait = called ? linger_ : pause(io_rests_, due()); wait > Duration{0}) {
                io_.wait_for(lock, std::chrono::nanoseconds(wait.value));
            } else {
                left_ = long_ago;
                driving_ = true;
                drive(lock, [&] { return callers_ > 0 || claimed() || stop(); });
                leave();
            }
            io_rests_ = false;
        }
    }

private:
    // A caller that sleeps.
    struct Waiter {
        const void* subject;
        std::condition_variable condition;
    };
    static constexpr Time long_ago{INT64_MIN};
    // Until the caller that has started something waits for it, as most do.
    static constexpr Duration hand_back_delay = microseconds(100);

    // Offers the free role to the next in turn.
    void pass() {
        if (driving_) return;
        if (exclusive_ > 0) {
            claims_.notify_all();
        } else if (!waiters_.empty()) {
            waiters_.front()->condition.notify_one();
        } else if (io_parked_) {
            io_.notify_one();
        }
    }

    // How long the I/O thread stays away from now on.
    Duration pause(bool at_rest, Time due) {
        if (left_ == long_ago) return Duration{0};
        const Time now = pump_.now();
        if (at_rest) return left_ + linger_ - now;
        return std::min(due, left_ + std::min(linger_, hand_back_delay)) - now;
    }

    EnginePump& pump_;
    Duration linger_;
    bool driving_ = false;  // somebody has the role
    int callers_ = 0;       // callers in wait_until
    int exclusive_ = 0;     // callers in take
    std::list<Waiter*> waiters_;
    std::condition_variable claims_;
    std::condition_variable io_;
    bool io_parked_ = false;  // the I/O thread sleeps until it is offered the role
    bool io_rests_ = false;   // it may sleep for all of linger_
    Time left_ = long_ago;    // when a caller last left; long_ago: the I/O thread has driven since
    std::uint64_t changes_ = 0;
};

}  // namespace dlcp

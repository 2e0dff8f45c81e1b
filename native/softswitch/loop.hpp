// Runs a core between ports: reads frames in the order of their times, lets the lines serve, sends departures, and
// sleeps until a frame arrives or a line is free.
//
// One thread runs it. Other threads pass their requests (status, another policy, faults) as functions, which run in
// that thread between two batches; call() returns when its function is done. Invariant: while run() is active, only
// run() and such functions touch the core and the ports.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "softswitch/capture.hpp"
#include "softswitch/core.hpp"
#include "softswitch/descriptor.hpp"
#include "softswitch/port.hpp"

namespace dlcp::softswitch {

struct LoopStatistics {
    Time busy{};              // CPU time of the loop's thread
    std::uint64_t waits = 0;  // times that it slept
};

class Loop {
public:
    // `busy_poll`: never sleeps, for the price of a core.
    Loop(Core& core, std::vector<std::unique_ptr<Port>> ports, bool busy_poll);

    // Runs until stop(). The exception of a function of call() goes to its caller.
    void run();
    // From any thread, and from a signal handler.
    void stop();

    // Once, after run(): releases the interfaces. Counters stay.
    void close();

    // Runs `work` in the loop's thread, or here if the loop does not run.
    void call(const std::function<void()>& work);

    // ---- only in work ----

    Core& core() { return core_; }
    Port& port(std::size_t index) { return *ports_[index]; }
    // Frames of this port go into `path` from now on; empty: no more. std::system_error if it cannot be written.
    void capture(std::size_t port, const std::string& path);
    const Capture* capture(std::size_t port) const { return captures_[port].get(); }
    // Sets a port's link by command; without one, the link is that of the interface.
    void set_link(std::size_t port, bool up);
    // Depths from now on; zero: no more.
    void sample_every(Time interval);
    LoopStatistics statistics() const;

private:
    struct Batch {
        std::span<const Arrival> frames;
        std::size_t next = 0;
    };

    // From the beginning of run() to its end, whatever ends it.
    class Running {
    public:
        explicit Running(Loop& loop);
        ~Running();
        Running(const Running&) = delete;

    private:
        Loop& loop_;
    };

    enum class Progress { nothing, some, all };  // of the frames that had come

    Progress handle_arrivals();
    void refill(std::size_t port);
    void serve(Time now);
    bool send();
    void wait();
    void look(Time timeout);
    void work_off();
    void flush_captures(Time now);
    void watch_links();
    void check_links();

    Core& core_;
    std::vector<std::unique_ptr<Port>> ports_;
    bool busy_poll_;
    std::vector<Batch> batches_;
    std::vector<pollfd> polled_;   // of the ports, then link changes, then wake_
    std::uint64_t blocked_ = 0;    // ports that did not take all, bit by bit
    std::vector<bool> held_down_;  // by set_link
    std::vector<std::unique_ptr<Capture>> captures_;
    bool capturing_ = false;
    Time flush_at_ = no_time;  // of captures
    Time look_at_{};           // at links, also if it never sleeps
    Time wall_offset_{};
    Descriptor links_;  // netlink: interfaces that change
    Descriptor wake_;   // eventfd
    std::atomic<bool> stopped_ = false;
    LoopStatistics statistics_;

    std::mutex mutex_;
    std::condition_variable done_;
    const std::function<void()>* work_ = nullptr;  // guarded by mutex_
    std::exception_ptr failure_;
    bool running_ = false;
    std::atomic<bool> has_work_ = false;
    std::mutex callers_;  // one call at a time
};

}  // namespace dlcp::softswitch

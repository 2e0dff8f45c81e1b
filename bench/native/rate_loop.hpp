// How packets of one size are moved from a sending process to a receiving one and counted, the same for whatever moves
// them: dpdk_limit (DPDK alone) and driver_rate (a driver's table).
//
// Each process says {"ready": 1, …} when it can and reads from its standard input when to start (seconds of the
// monotonic clock; 0: now). Both measure from `warm-up` after that for `seconds`. A page of a shared file says how far each is:
// the sender never has more than `window` packets on their way, and sleeps while it may not send, so that its
// processor time is that of sending. It sends on until the receiver's time is over as well; the receiver then takes what
// is still on its way, so that in the end the counts are equal if nothing was lost.
//
// Besides processor time (the receiver's, which polls, includes polls that find nothing) cycles of those bursts are
// told that moved packets: for the sender full ones that were taken whole.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <string>

#include "arguments.hpp"
#include "clock.hpp"
#include "cycles.hpp"
#include "json.hpp"

namespace dlcp::bench {

#define DLCP_BENCH_RATE_ARGUMENTS                                                                         \
    {"role", "send"}, {"seconds", "0.5"}, {"warm-up", "0.1"}, {"burst", "64"}, {"bytes", "1472"},         \
        {"window", "768"},  /* packets on their way at most; 0: whatever the device takes */              \
        {"progress", ""}, { /* the shared file; empty: there is no receiver, and nothing is waited for */ \
        "sleep", "0"        /* 1: a receiver that finds nothing sleeps until there is something */        \
    }

class RateLoop {
public:
    explicit RateLoop(const Arguments& arguments)
        : warm_up_s_(arguments.real("warm-up")),
          seconds_(arguments.real("seconds")),
          window_(static_cast<std::uint64_t>(arguments.integer("window"))),
          alone_(arguments.text("progress").empty()) {
        cycles_per_second();
        if (alone_) return;
        const int file = open(arguments.text("progress").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0 || ftruncate(file, sizeof(Progress)) != 0) die("cannot make " + arguments.text("progress"));
        void* memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (memory == MAP_FAILED) die("cannot map " + arguments.text("progress"));
        close(file);
        progress_ = static_cast<Progress*>(memory);
        prctl(PR_SET_TIMERSLACK, 1UL);
    }

    // `burst()` sends one burst and answers {packets wanted, packets taken}.
    template <class Burst>
    Json send(Json ready, Burst&& burst) {
        const double start_s = start(std::move(ready));
        Reading first{}, last{};
        Slices busy;
        std::uint64_t bursts = 0;
        bool measuring = false, measured = false;
        // The receiver's end is a little later than ours.
        const double end_s = start_s + warm_up_s_ + seconds_;
        for (double at = wall_s(); at < end_s + (alone_ ? 0 : 0.02); at = wall_s()) {
            if (!measuring && at >= start_s + warm_up_s_) {
                measuring = true;
                first = {at, thread_cpu_s(), sent_};
            }
            if (!measured && at >= end_s) {
                measured = true;
                last = {at, thread_cpu_s(), sent_};
            }
            await_room();
            // The clock is read once in a while only: it would be a part of what is measured.
            for (int i = 0; i < bursts_per_look && room(); ++i) {
                const std::uint64_t before = read_cycles();
                const auto [wanted, taken] = burst();
                const std::uint64_t cycles = read_cycles() - before;
                sent_ += taken;
                refused_ += wanted - taken;
                burst_ = std::max<std::uint64_t>(burst_, wanted);
                if (measuring && !measured) {
                    ++bursts;
                    if (taken == wanted && taken > 0) busy.add(cycles, taken);
                }
            }
        }
        if (!measured) last = {wall_s(), thread_cpu_s(), sent_};
        if (!alone_) {
            progress_->sent.store(sent_, std::memory_order_relaxed);
            progress_->over.store(1, std::memory_order_release);
            // DPDK's memif gives back what its poller reads when the other end goes: the receiver goes first.
            for (std::string line; std::getline(std::cin, line);) {}
        }
        return answer("send", first, last, busy, bursts)
            .add("total_packets", sent_)
            .add("refused_packets", refused_)
            .add("given_up_packets", given_up_);
    }

    // `burst()` receives and frees what is there, and answers how many packets; `sleep()` is called if that was none.
    template <class Burst, class Sleep>
    Json receive(Json ready, Burst&& burst, Sleep&& sleep) {
        const double start_s = start(std::move(ready));
        Reading first{}, last{};
        Slices busy;
        std::uint64_t bursts = 0, received = 0;
        bool measuring = false, measured = false;
        const double end_s = start_s + warm_up_s_ + seconds_;
        double heard_s = wall_s();
        while (true) {
            const double at = wall_s();
            if (!measuring && at >= start_s + warm_up_s_) {
                measuring = true;
                first = {at, thread_cpu_s(), received};
            }
            if (!measured && at >= end_s) {
                measured = true;
                last = {at, thread_cpu_s(), received};
            }
            if (at > end_s && over(received, at - heard_s)) break;
            for (int i = 0; i < bursts_per_look; ++i) {
                const std::uint64_t before = read_cycles();
                const std::uint64_t n = burst();
                if (n == 0) {
                    sleep();
                    continue;
                }
                const std::uint64_t cycles = read_cycles() - before;
                received += n;
                progress_->received.store(received, std::memory_order_release);
                heard_s = at;
                if (measuring && !measured) {
                    ++bursts;
                    busy.add(cycles, n);
                }
            }
        }
        return answer("receive", first, last, busy, bursts).add("total_packets", received);
    }

private:
    static constexpr int bursts_per_look = 8;
    static constexpr double patience_s = 0.2;  // without progress: what is on its way is lost

    // A cache line each, so that one side's stores do not slow the other's.
    struct Progress {
        alignas(64) std::atomic<std::uint64_t> received;
        alignas(64) std::atomic<std::uint64_t> sent;
        std::atomic<std::uint64_t> over;
    };
    struct Reading {
        double wall_s, cpu_s;
        std::uint64_t packets;
    };

    double start(Json ready) const {
        ready.add("ready", 1).print();
        double start_s = 0;
        if (!(std::cin >> start_s)) die("nobody said when to start");
        if (start_s == 0) start_s = wall_s();
        while (wall_s() < start_s) usleep(1000);
        return start_s;
    }

    bool room() const {
        if (alone_ || window_ == 0) return true;
        return sent_ + burst_ <= progress_->received.load(std::memory_order_acquire) + given_up_ + window_;
    }
    // Sleeps until half of the window is free, so that a sleep is paid by many packets.
    void await_room() {
        if (room()) return;
        const double since_s = wall_s();
        std::uint64_t known = progress_->received.load(std::memory_order_acquire);
        double moved_s = since_s;
        while (sent_ > known + given_up_ + window_ / 2) {
            const timespec nap{0, 20'000};
            nanosleep(&nap, nullptr);
            const std::uint64_t received = progress_->received.load(std::memory_order_acquire);
            const double at = wall_s();
            if (received != known) moved_s = at;
            known = received;
            if (at - moved_s > patience_s) given_up_ = sent_ - known;
        }
    }
    bool over(std::uint64_t received, double silent_s) const {
        if (silent_s > patience_s && progress_->over.load(std::memory_order_acquire) != 0) return true;
        return progress_->over.load(std::memory_order_acquire) != 0 &&
               received >= progress_->sent.load(std::memory_order_relaxed);
    }

    Json answer(const char* role, const Reading& first, const Reading& last, const Slices& busy,
                std::uint64_t bursts) const {
        const auto packets = static_cast<double>(last.packets - first.packets);
        const double cpu_s = last.cpu_s - first.cpu_s, cycles = busy.cycles_per_packet();
        Json json;
        json.add("role", std::string(role))
            .add("packets", last.packets - first.packets)
            .add("wall_s", last.wall_s - first.wall_s)
            .add("cpu_s", cpu_s)
            .add("kpps", packets / (last.wall_s - first.wall_s) * 1e-3)
            .add("kpps_per_cpu_s", packets / cpu_s * 1e-3)
            .add("busy_cycles", cycles)
            .add("busy_ns", cycles / cycles_per_second() * 1e9)
            .add("packets_per_burst", bursts ? packets / static_cast<double>(bursts) : 0.0);
        return json;
    }

    const double warm_up_s_, seconds_;
    const std::uint64_t window_;
    const bool alone_;
    Progress* progress_ = nullptr;
    std::uint64_t sent_ = 0, refused_ = 0, given_up_ = 0, burst_ = 0;
};

}  // namespace dlcp::bench

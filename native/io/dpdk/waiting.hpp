// How wait() waits for packets of devices that cannot be slept on: it looks, and looks less and less often.
//
//   last packet, either way ── yield the core ──yield_ns──> sleep an eighth of the time since, sleep_ns_max at most
//
// So a packet that comes soon is seen at once, one that comes late is seen an eighth later at worst, and an idle endpoint
// costs little. Sleeping is in an epoll, which wake() and watched descriptors end at once. Where every port has an rx
// interrupt, the last step is to arm them, look once more, and sleep until one comes.
//
// Yielding comes at once since it costs a third of a microsecond where a core is free, and where none is the peer may be
// the one who waits for it. Round trip of 64 bytes between two processes over memif, and processor time of an endpoint
// with nothing to do (python -m bench dpdk, a core each):
//   spin    4.2 us   a whole core
//   yield   4.0 us   a whole core
//   sleep   74 us    5 %
//   automatic: yielding to 50 us, then sleeping   4.1 us   5 %
// Spinning for 10 us first took 26 us where both cores were busy, the same way without it 5.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "io/dpdk/address_pairs.hpp"
#include "io/dpdk/options.hpp"
#include "io/poller.hpp"

namespace dlcp::dpdk {

class Waiter {
public:
    // `uplinks` must outlive this.
    int open(PollMode mode, std::span<Uplink> uplinks, ErrorText error);

    // What wait() looks at in between.
    class Work {
    public:
        virtual ~Work() = default;
        // Does what is due and looks for packets. True: there are some.
        virtual bool poll(std::int64_t now_ns) = 0;
        // When something is due next.
        virtual std::int64_t deadline_ns() const = 0;
    };

    // Until work.poll(), wake(), a watched descriptor or timeout_ns (<0: none).
    void wait(std::int64_t timeout_ns, Work& work);
    void wake();  // any thread
    // Packets came or went: one is likely to come soon.
    void note_activity(std::int64_t now_ns) { active_ns_ = now_ns; }
    int watch(int descriptor, std::uint8_t* readable);
    void unwatch(int descriptor);

    bool sleeps() const { return mode_ != PollMode::spin && mode_ != PollMode::yield; }

private:
    static constexpr std::int64_t yield_ns = 50'000;
    static constexpr std::int64_t sleep_ns_min = 5'000;
    static constexpr std::int64_t sleep_ns_max = 200'000;
    static constexpr std::int64_t idle_ns = 1'000'000'000;  // from here on an endpoint is idle, and may sleep
    static constexpr std::int64_t idle_sleep_ns_max = 1'000'000;
    // While it does not sleep. An epoll costs as much as many looks.
    static constexpr int looks_per_epoll = 32;

    struct Watched {
        int descriptor;
        std::uint8_t* readable;
    };

    bool woken() { return woken_.load(std::memory_order_relaxed) && woken_.exchange(false); }
    bool any_readable() const;
    void sleep(std::int64_t timeout_ns);
    void arm(bool on) const;

    PollMode mode_ = PollMode::automatic;
    std::span<Uplink> uplinks_;
    bool has_interrupts_ = false;  // of all queues of all ports
    std::vector<Watched> watched_;
    int looks_ = 0;  // since the last epoll
    Poller poller_;
    std::int64_t active_ns_ = 0;  // when packets last came or went
    std::atomic<bool> woken_{false};
};

}  // namespace dlcp::dpdk

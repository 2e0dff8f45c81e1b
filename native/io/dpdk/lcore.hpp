// The number that DPDK knows a driver by, among its lcores ("logical cores"), whichever thread drives it.
//
// A pool keeps a cache of buffers per number, and what lies in one is out of reach of the others: up to 384 buffers. Calls
// of one driver come from many threads, one at a time: were each known by a number of its own, a few would hold a whole
// pool between them. So the number is the driver's, and the calling thread works under it for as long as a call lasts.
//
// Measured with a pool of 2 KB buffers (22.11, one thread): without a number 16..25 ns per buffer in bulks of 32 and
// 30..43 ns singly, with one 9..13 ns and 6..8 ns.
#pragma once

namespace dlcp::dpdk {

class Lcore {
public:
    Lcore() = default;
    // Gives the number back, and what lies in its caches to the pools.
    ~Lcore();
    Lcore(const Lcore&) = delete;
    Lcore& operator=(const Lcore&) = delete;

    // Once DPDK runs. It may fail, where a secondary process is attached or all RTE_MAX_LCORE numbers are taken: buffers
    // then go without a cache, which is no harm but slower.
    void take();

    // Once, when DPDK has started; DPDK may be built without timers.
    static void prepare_timers();
    // Runs timers that devices have set under this number, when they were opened: ENA watches itself by one, a second
    // apart, and counts on the thread that drives it (DPDK's guide of the driver: "Watchdog").
    void run_timers() const;

    // While it lives the calling thread has the driver's number. Another one that it had, of DPDK's own or of another
    // driver, it has again afterwards.
    class Use {
    public:
        explicit Use(const Lcore& lcore);
        ~Use();
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

    private:
        const unsigned before_;
    };

private:
    unsigned id_ = none;
    static constexpr unsigned none = 0xffffffff;  // LCORE_ID_ANY
};

}  // namespace dlcp::dpdk

// What driving an engine means: packets from the driver to it and back, its timers, and sleep until more is due.
//
// Only the thread that drives calls `round`, `flush`, `nap` and `sleep`; any thread may call `now` and `interrupt`. All
// with the runtime's mutex held, which is given up whenever the driver is called. Keeps no packet over from one call to
// the next.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "collective/executor.hpp"
#include "engine/endpoint.hpp"
#include "io/io_table.h"
#include "io/real_time.hpp"

namespace dlcp {

class EnginePump {
public:
    using Lock = std::unique_lock<std::mutex>;

    void open(const dlcp_io_table& table, dlcp_io* io, std::uint32_t max_burst_packets);
    // Before the first round; they stay the caller's.
    void set_engine(Endpoint& engine, CollectiveExecutor& collectives) {
        engine_ = &engine;
        collectives_ = &collectives;
    }
    // When the engine or a collective is next due.
    Time next_deadline() const { return std::min(engine_->next_deadline(), collectives_->next_deadline()); }

    // The driver's time as the engine wants it: never back.
    Time now();
    Time last_now() const { return last_now_; }
    // Receives, handles, transmits, a few bursts of each at most. True if there is nothing more to do now.
    bool round(Lock& lock);
    // Transmits only.
    void flush(Lock& lock);
    // Until a packet, the engine's deadline, interrupt() or `until`. Returns at once if there was an interrupt()
    // since the last round began.
    void sleep(Lock& lock, RealTime until);
    // Has the thread that drives look again: at a command, or at another thread that wants to drive.
    void interrupt();

    // Sleeps for as long as what arrives may wait in the driver, or until interrupt(). False: it may not wait.
    bool nap(Lock& lock, RealTime until);

    std::uint64_t sleeps() const { return sleeps_; }

private:
    enum class Transmitted {
        drained,  // the engine has nothing more to send now
        more,     // it may have
        starved,  // the driver has no free buffer
    };
    bool receive(Lock& lock);
    Transmitted transmit(Lock& lock);
    void copy_addresses(std::span<dlcp_packet> packets);

    const dlcp_io_table* table_ = nullptr;
    dlcp_io* io_ = nullptr;
    Endpoint* engine_ = nullptr;
    CollectiveExecutor* collectives_ = nullptr;
    Time last_now_{INT64_MIN};
    bool interrupted_ = false;  // since the last round began
    bool sleeping_ = false;     // a thread is in the driver's wait() …
    bool woken_ = false;        // … out of which it has been called
    bool starved_ = false;      // the last round ended for want of buffers
    bool napping_ = false;
    std::condition_variable nap_end_;
    bool virtual_clock_ = false;  // one that moves in the driver's wait() alone, and so in no nap
    std::uint64_t sleeps_ = 0;

    // Without the mutex: of the thread that drives.
    std::vector<dlcp_packet> rx_;
    std::vector<dlcp_packet> tx_;
    std::vector<dlcp_address> tx_addresses_;  // of the burst being sent
};

}  // namespace dlcp

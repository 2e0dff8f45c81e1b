// A runtime joins one engine to one driver and gives both a clock, a seed and a thread.
//
// Driving. It means: receive, handle, transmit, take events, sleep. One thread at a time has the driving
// role. At rest it is the I/O thread, asleep in the driver's wait(). A caller that waits for a message takes the
// role itself (leader), so that a small message pays no hand-over between threads; other waiting callers sleep on
// a condition variable (followers) and one of them is given the role when the leader leaves. When the I/O thread takes
// it back stands in driving_role.hpp.
//
// Invariants: only the holder of the role calls the driver, except now_ns and wake. Only the holder takes events,
// so a message's memory is in nobody's hands but the caller's once its operation is over. The mutex guards the
// engine and everything below; it is not held while the driver sends, receives or sleeps.
//
// Any thread may call any function. Errors of the caller are thrown as IoError, before anything has changed. After a
// fork the child's copy throws IoError (forked) and touches nothing.
//
// runtime.cpp has the calls, runtime_lifetime.cpp opening and closing, runtime_driving.cpp what the driving thread does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/endpoint.hpp"
#include "engine/wire.hpp"
#include "io/collectives.hpp"
#include "io/driving_role.hpp"
#include "io/engine_pump.hpp"
#include "io/fork_guard.hpp"
#include "io/huge_pages.hpp"
#include "io/io_error.hpp"
#include "io/io_table.h"
#include "io/open_driver.hpp"
#include "io/operation.hpp"
#include "io/patience.hpp"
#include "io/real_time.hpp"
#include "io/runtime_log.hpp"
#include "io/runtime_options.hpp"
#include "io/wait_habit.hpp"

namespace dlcp {

struct RuntimeStatistics {
    Counters engine;
    dlcp_io_counters io{};
    std::uint64_t injected_lost_packets = 0;  // arrived, and dropped because of inject_loss_ratio
    std::uint64_t outstanding_operations = 0;
    std::uint64_t log_entries_dropped = 0;
    std::uint64_t driver_waits = 0;  // times a driving thread slept
    std::uint64_t role_changes = 0;  // times the driving role went to a caller
};

class Runtime {
public:
    // Opens the driver, makes the engine, starts the thread. Blocks for a name lookup at most.
    explicit Runtime(const RuntimeOptions& options);
    // Closes. Not to be called in a forked child (RuntimePtr).
    ~Runtime() { close(); }
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    // Names a peer and starts the handshake; does not wait for it. Blocks for a name lookup at most. The same rank
    // at the same address again changes nothing. False if it was a peer already.
    bool connect(std::uint32_t rank, const std::string& address);
    // Tells the peer and fails everything outstanding with it.
    void disconnect(std::uint32_t rank);
    // Blocks until the handshake with `rank`, which need not be named yet, is over. False: time is up.
    bool wait_established(std::uint32_t rank, Duration timeout);
    bool established(std::uint32_t rank) const;
    // Ranks of all peers, named by us or by themselves, in the order met.
    std::vector<std::uint32_t> peers() const;
    // Payload bytes of a full block of the next message to this peer (Endpoint::block_bytes).
    std::uint16_t block_bytes(std::uint32_t rank, std::uint16_t unit_bytes = 1) const;
    std::string peer_address(std::uint32_t rank);

    // The memory named in the command must stay until the operation is over. The command's peer is found by `rank`.
    // `importance_of_all`: of every block of a message whose command has none; 255: critical. `wait_follows`: the caller
    // waits at once, so nobody else need be woken to transmit.
    OperationPtr send(std::uint32_t rank, SendCommand command,
                      std::uint8_t importance_of_all = wire::importance_critical, bool wait_follows = false);
    // No rank: from whoever sends first.
    OperationPtr receive(std::optional<std::uint32_t> rank, ReceiveCommand command, bool wait_follows = false);
    // Gives it up; it is over soon, with error `cancelled`. False if it was over already.
    bool cancel(const OperationPtr& operation);
    // Blocks until it is over. False: time is up. A negative timeout is none.
    bool wait(const OperationPtr& operation, Duration timeout) { return wait_for(operation, timeout); }
    // Drives for at most `timeout` (0: does what is due and does not block). True if an operation became over.
    // Returns at once if another thread drives.
    bool progress(Duration timeout);

    // Has next_finished answer `id` (not 0) once the operation is over. False if it is over already.
    bool watch(const OperationPtr& operation, std::uint64_t id) { return watch_for(operation, id); }

    // Collectives (collective/executor.hpp): a group of ranks, and what its members do together. Peers must have been
    // named by connect(). Mistakes are thrown as std::invalid_argument, before anything has started.
    bool open_group(std::uint32_t group, const std::vector<std::uint32_t>& members, std::uint32_t own);
    void close_group(std::uint32_t group, bool tell);
    CollectivePtr start(const CollectiveCommand& command, bool wait_follows) {
        huge_pages_.note(command.output);
        if (command.input.data() != command.output.data()) huge_pages_.note(command.input);
        return start_any(command, wait_follows);
    }
    CollectivePtr start(const MessageCommand& command, bool wait_follows) {
        return start_any(command, wait_follows);
    }
    // Blocks until peers have taken, or will never take, what operations that are over have left in copies. False: time
    // is up.
    bool wait_delivered(Duration timeout);
    // Bytes of such copies that have not been taken, by rank; those of peers that have gone without them are included.
    std::unordered_map<std::uint32_t, std::uint64_t> undelivered() const;
    bool wait(const CollectivePtr& operation, Duration timeout) { return wait_for(operation, timeout); }
    bool watch(const CollectivePtr& operation, std::uint64_t id) { return watch_for(operation, id); }
    // Ids of watched operations that are over. Blocks until there is one; empty: time is up or the runtime is closed.
    // Never drives: for one thread that dispatches callbacks.
    std::vector<std::uint64_t> next_finished(Duration timeout);

    std::vector<RuntimeLogEntry> drain_log();
    RuntimeStatistics statistics();
    // What only this driver counts, by name: of its network card, of its address resolution. Empty if it has nothing.
    std::vector<std::pair<std::string, std::uint64_t>> driver_statistics();
    // Throws IoError (unknown_peer).
    PeerStatistics peer_statistics(std::uint32_t rank);
    std::vector<PathStatistics> path_statistics(std::uint32_t rank) const;
    void advance_key_epoch();

    const std::string& driver_name() const { return options_.driver; }
    const std::string& local_address() const { return local_address_; }
    // Lines from the driver about what was found when opening.
    const std::string& warnings() const { return warnings_; }
    const dlcp_io_capabilities& capabilities() const { return capabilities_; }
    // As the engine was given it, with what came from the driver.
    const EndpointConfig& config() const { return options_.engine; }
    bool closed() const;
    // This is a forked child of the process that opened it.
    bool forked() const { return fork_guard_.forked(); }

    // Tells the peers, fails what is outstanding with error `closed`, joins the thread, closes the driver. The
    // callers that wait return first. Again, or in a forked child: nothing.
    void close();

private:
    using Lock = EnginePump::Lock;

    struct Peer {
        PeerId id;
        bool named = false;  // by connect()
        bool here = true;    // not disconnected since
    };

    // Counts a thread inside a call, so that close() can let it leave first. Made with the mutex held.
    class Inside {
    public:
        enum AlsoClosing { also_closing };
        explicit Inside(Runtime& runtime) : runtime_(runtime) {
            runtime.check_usable();
            ++runtime.inside_;
        }
        Inside(Runtime& runtime, AlsoClosing) : runtime_(runtime) { ++runtime.inside_; }
        ~Inside() {
            if (--runtime_.inside_ == 0 && runtime_.closing_) runtime_.changed_.notify_all();
        }

    private:
        Runtime& runtime_;
    };

    // The mutex; asked before it is locked, since in a forked child nobody may be there to free it.
    Lock enter() const {
        if (forked()) throw forked_refusal();
        return Lock(mutex_);
    }
    void check_usable() const {
        if (closing_) throw closed_refusal(options_.engine.rank);
    }

    // ---- opening and closing (runtime_lifetime.cpp) ----

    EndpointConfig configure();
    void start_thread();
    void end_operations();

    // ---- driving (runtime_driving.cpp) ----

    // Waits until `done`, the deadline, or closing; drives whenever nobody else does.
    template <class Done>
    void wait_until(Lock& lock, Done&& done, RealTime until, const void* operation) {
        const auto drive = [&](Lock&, auto&& stop) { drive_patiently(lock, stop, until); };
        role_.wait_until(
            lock, [&] { return done() || closing_; }, until, operation, drive);
        call_io();
    }
    // The loop of whoever has the role.
    template <class Stop>
    void drive(Lock& lock, Stop&& stop, RealTime until) {
        while (!stop() && !has_passed(until))
            if (round(lock) && !stop() && !pump_.nap(lock, until)) pump_.sleep(lock, until);
    }
    // The same for a caller, who is better served by looking a little longer than by sleeping a little.
    template <class Stop>
    void drive_patiently(Lock& lock, Stop&& stop, RealTime until) {
        while (!stop() && !has_passed(until)) {
            if (!round(lock))
                patience_.was_busy();
            else if (!stop() && !pump_.nap(lock, until))
                look_or_sleep(lock, until);
        }
        patience_.was_busy();
    }
    void look_or_sleep(Lock& lock, RealTime until);
    bool at_rest() const;
    void call_io();
    void drive_once(Lock& lock);
    void kick(Lock& lock);
    void flush(Lock& lock);
    bool round(Lock& lock);
    void serve();
    void take_driver_events(Lock& lock);
    void take_events();
    void finish(const Event& event);
    template <class AnyOperation>
    void mark_over(AnyOperation& operation);
    void note(RuntimeLogEntry entry);

    // ---- calls (runtime.cpp) ----

    template <class Command>
    CollectivePtr start_any(const Command& command, bool wait_follows) {
        Lock lock = enter();
        const Inside inside(*this);
        const bool alone = at_rest();
        const Time now = pump_.now();
        CollectivePtr operation = collectives_->start(now, command);
        if (wait_follows || habit_.starts(now, alone))
            flush(lock);
        else
            kick(lock);
        return operation;
    }
    template <class AnyOperation>
    bool wait_for(const std::shared_ptr<AnyOperation>& operation, Duration timeout) {
        if (operation->over.load(std::memory_order_acquire)) return true;
        Lock lock = enter();
        const Inside inside(*this, Inside::also_closing);
        const auto done = [&] { return operation->over.load(std::memory_order_relaxed); };
        habit_.waits(pump_.now());
        wait_until(lock, done, real_deadline(timeout), operation.get());
        if (closing_) changed_.wait(lock, done);  // close() makes it so
        return done();
    }
    template <class AnyOperation>
    bool watch_for(const std::shared_ptr<AnyOperation>& operation, std::uint64_t id) {
        const Lock lock = enter();
        if (operation->over.load(std::memory_order_relaxed)) return false;
        operation->watch = id;
        return true;
    }
    OperationPtr begin(Lock& lock, std::uint32_t rank, PeerId peer, std::uint64_t tag, MessageId message,
                       bool sending, bool wait_follows);
    dlcp_address resolve(Lock& lock, const std::string& text, std::uint32_t rank);
    void note_peer(std::uint32_t rank, PeerId id);
    PeerId peer_of(std::uint32_t rank) const;
    bool is_established(std::uint32_t rank) const;

    RuntimeOptions options_;  // `engine` as the engine was given it
    dlcp_io_capabilities capabilities_{};
    std::string local_address_;
    std::string warnings_;
    std::optional<OpenDriver> driver_;  // from the constructor to close()
    ForkGuard fork_guard_;
    HugePages huge_pages_;

    mutable std::mutex mutex_;  // guards all below
    std::unique_ptr<Endpoint> engine_;
    std::unique_ptr<Collectives> collectives_;
    std::unordered_map<std::uint64_t, OperationPtr> operations_;  // pending, by key_of(message)
    RuntimeLog log_;
    std::vector<std::uint64_t> finished_;  // watched operations that are over, not yet asked for
    std::uint64_t finished_count_ = 0;     // operations that have ended since the runtime was opened
    std::condition_variable finished_condition_;
    std::unordered_map<std::uint32_t, Peer> peers_;  // by rank
    std::vector<std::uint32_t> ranks_;               // of peers_ that are here, in the order met

    EnginePump pump_;
    DrivingRole role_;
    Patience patience_;  // of the callers that drive
    WaitHabit habit_;    // of those that start groups' operations
    std::thread thread_;
    bool stop_ = false;  // the I/O thread is to end

    int inside_ = 0;                   // threads inside a call
    bool closing_ = false;             // close() has begun
    bool closed_ = false;              // close() is over
    std::condition_variable changed_;  // closing_, and: operations are over, inside_ became 0, or closed_ true
    // Of the driver when it was closed.
    dlcp_io_counters final_io_{};
    std::uint64_t final_injected_lost_packets_ = 0;
};

// Owns a runtime that a forked child may hold a copy of. There its mutex may be held and its thread is missing: the copy
// is left to the end of the process.
struct RuntimeDeleter {
    void operator()(Runtime* runtime) const {
        if (!runtime->forked()) delete runtime;
    }
};
using RuntimePtr = std::unique_ptr<Runtime, RuntimeDeleter>;

}  // namespace dlcp

// A runtime joins one engine to one driver and gives both a clock, a seed and a thread.
//
// Who drives. Driving means: receive, handle, transmit, take events, sleep. One thread at a time has the driving
// role. At rest it is the I/O thread, asleep in the driver's wait(). A caller that waits for a message takes the
// role itself (leader), so that a small message pays no hand-over between threads; other waiting callers sleep on
// a condition variable (followers) and one of them is given the role when the leader leaves. The I/O thread takes
// it back once no caller has had it for RuntimeOptions::linger, or earlier when the engine's deadline has come: a
// burst of small blocking calls pays one hand-over.
//
// Invariants: only the holder of the role calls the driver, except now_ns and wake. Only the holder takes events,
// so a message's memory is in nobody's hands but the caller's once its operation is over. The mutex guards the
// engine and everything below; it is not held while the driver sends, receives or sleeps.
//
// Any thread may call any function. Errors of the caller are thrown as RuntimeError, before anything has changed.
// After a fork the child's copy throws RuntimeError (forked) and touches nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/endpoint.hpp"
#include "io/collectives.hpp"
#include "io/io_table.h"
#include "io/runtime_error.hpp"
#include "io/runtime_log.hpp"
#include "io/runtime_options.hpp"

namespace dlcp {

// One send or receive. Everything but `over` is constant once `over` is true, and not to be read before.
struct Operation {
    std::atomic<bool> over{false};
    bool sending = false;
    CommandError error = CommandError::none;
    PeerId peer;
    std::uint32_t rank = UINT32_MAX;  // the peer's; UINT32_MAX: a receive from anyone that nobody answered
    std::uint64_t tag = 0;
    std::uint32_t capacity_bytes = 0;  // of the caller's buffer
    Duration waited{0};                // from the command to the final event
    MessageOutcome outcome;            // its `abandoned` points into `abandoned` below
    std::vector<std::uint64_t> abandoned;
    // Called once by the thread that drives when the operation is over. Must not block, throw or call the runtime.
    std::function<void(Operation&)> on_over;

private:
    friend class Runtime;
    MessageId message;
    std::uint64_t watch = 0;  // 0: not watched; otherwise what next_finished answers
};
using OperationPtr = std::shared_ptr<Operation>;

struct RuntimeSend {
    std::uint32_t rank = 0;
    std::uint64_t tag = 0;
    const void* payload = nullptr;
    std::uint64_t message_bytes = 0;
    std::uint32_t traffic_class = 0;
    Delivery delivery = Delivery::reliable;
    double loss_ratio = 0.0;
    Duration deadline{0};
    const std::uint8_t* importance = nullptr;  // one per block, or nullptr: the same for all of them, which is
    std::uint64_t importance_count = 0;
    std::uint8_t importance_of_all = 255;  // … this; 255: critical
    std::function<void(Operation&)> on_over;
    bool wait_follows = false;  // the caller waits at once: nobody else need be woken to transmit
};

struct RuntimeReceive {
    std::optional<std::uint32_t> rank;  // none: from whoever sends first
    std::uint64_t tag = 0;
    void* buffer = nullptr;
    std::uint64_t capacity_bytes = 0;
    std::function<void(Operation&)> on_over;
    bool wait_follows = false;
};

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
    // Closes.
    ~Runtime();
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
    // Payload bytes of a full block to this peer. Fixed once established.
    std::uint16_t block_bytes(std::uint32_t rank) const;
    std::string peer_address(std::uint32_t rank);

    // The memory named in the command must stay until the operation is over.
    OperationPtr send(const RuntimeSend& command);
    OperationPtr receive(const RuntimeReceive& command);
    // Gives it up; it is over soon, with error `cancelled`. False if it was over already.
    bool cancel(const OperationPtr& operation);
    // Blocks until it is over. False: time is up. A negative timeout is none.
    bool wait(const OperationPtr& operation, Duration timeout);
    // Drives for at most `timeout` (0: does what is due and does not block). True if an operation became over.
    // Returns at once if another thread drives.
    bool progress(Duration timeout);

    // Has next_finished answer `id` (not 0) once the operation is over. False if it is over already.
    bool watch(const OperationPtr& operation, std::uint64_t id);

    // Collectives (collective/executor.hpp): a group of ranks, and what its members do together. Peers must have been
    // named by connect(). Mistakes are thrown as std::invalid_argument, before anything has started.
    bool open_group(std::uint32_t group, const std::vector<std::uint32_t>& members, std::uint32_t own);
    void close_group(std::uint32_t group, bool tell);
    // `wait_follows`: as in RuntimeSend.
    CollectivePtr start(const CollectiveCommand& command, bool wait_follows);
    CollectivePtr start(const MessageCommand& command, bool wait_follows);
    bool wait(const CollectivePtr& operation, Duration timeout);
    bool watch(const CollectivePtr& operation, std::uint64_t id);
    // Ids of watched operations that are over. Blocks until there is one; empty: time is up or the runtime is closed.
    // Never drives: for one thread that dispatches callbacks.
    std::vector<std::uint64_t> next_finished(Duration timeout);

    std::vector<RuntimeLogEntry> drain_log();
    RuntimeStatistics statistics();
    // What only this driver counts, by name: of its network card, of its address resolution. Empty if it has nothing.
    std::vector<std::pair<std::string, std::uint64_t>> driver_statistics();
    // Throws RuntimeError (unknown_peer).
    PeerStatistics peer_statistics(std::uint32_t rank) const;
    std::vector<PathStatistics> path_statistics(std::uint32_t rank) const;
    void advance_key_epoch();

    const std::string& driver_name() const;
    const std::string& local_address() const;
    // Lines from the driver about what was found when opening.
    const std::string& warnings() const;
    const dlcp_io_capabilities& capabilities() const;
    // As the engine was given it, with what came from the driver.
    const EndpointConfig& config() const;
    bool closed() const;

    // Tells the peers, fails what is outstanding with error `closed`, joins the thread, closes the driver. The
    // callers that wait return first. Again, or in a forked child: nothing. Never call it from on_over.
    void close();

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace dlcp

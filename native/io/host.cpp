#include "io/host.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "engine/wire.hpp"
#include "io/driver_bursts.hpp"
#include "io/driver_registry.hpp"
#include "io/fork_guard.hpp"

namespace dlcp {
namespace {

using Lock = std::unique_lock<std::mutex>;
// Timeouts of callers are in real time, also where the driver's clock is virtual.
using RealClock = std::chrono::steady_clock;
using RealTime = RealClock::time_point;
constexpr RealTime real_never = RealTime::max();

RealTime real_deadline(Duration timeout) {
    if (timeout.value < 0) return real_never;
    const RealTime now = RealClock::now();
    const auto room = std::chrono::duration_cast<std::chrono::nanoseconds>(real_never - now).count();
    return timeout.value >= room ? real_never : now + std::chrono::nanoseconds(timeout.value);
}

void sleep_until(std::condition_variable& condition, Lock& lock, RealTime until) {
    if (until == real_never) {
        condition.wait(lock);
    } else {
        condition.wait_until(lock, until);
    }
}

std::uint64_t entropy() {
    std::uint64_t seed = 0;
    auto* bytes = reinterpret_cast<std::uint8_t*>(&seed);
    for (std::size_t have = 0; have < sizeof seed;) {
        const ssize_t got = getrandom(bytes + have, sizeof seed - have, 0);
        if (got > 0) {
            have += static_cast<std::size_t>(got);
        } else if (errno != EINTR) {
            throw HostError(HostErrorKind::system,
                            std::string("getrandom: ") + std::strerror(errno) + "; session ids need entropy");
        }
    }
    return seed;
}

bool is_in(const std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// A MessageId as one number, to look it up.
std::uint64_t key_of(MessageId message) { return std::uint64_t{message.generation} << 32 | message.slot; }

}  // namespace

class Host::Impl {
public:
    explicit Impl(const HostOptions& options) : options_(options) {}

    // ---- opening and closing ----

    void open() {
        table_ = options_.table != nullptr ? options_.table : &find_driver(options_.driver);
        EndpointConfig config = options_.engine;
        // Before the driver: a mistake in the settings should not need a free port to be found.
        if (options_.max_datagram_bytes != 0) check_max_datagram(config);
        refuse_if(config.validate());
        open_driver();
        try {
            table_->capabilities(io_, &capabilities_);
            refuse_unauthenticated();
            constexpr std::uint32_t engine_max_datagram_bytes = 9152;
            config.max_datagram_bytes = static_cast<std::uint16_t>(
                std::min({capabilities_.max_datagram_bytes, engine_max_datagram_bytes,
                          options_.max_datagram_bytes != 0 ? options_.max_datagram_bytes : UINT32_MAX}));
            if (options_.receive_buffer_bytes != 0) {
                config.receive_buffer = Bytes{options_.receive_buffer_bytes};
            } else if (capabilities_.receive_buffer_bytes != 0) {
                config.receive_buffer = Bytes{capabilities_.receive_buffer_bytes};
            }
            refuse_if(config.validate());
            options_.engine = config;
            dlcp_address local{};
            table_->local_address(io_, &local);
            local_address_ = format(local);
            warnings_ = table_->warnings(io_);
            bursts_.open(*table_, io_, capabilities_.max_burst_packets);
            last_now_ = Time{table_->now_ns(io_)};
            engine_ =
                std::make_unique<Endpoint>(config, options_.seed != 0 ? options_.seed : entropy(), last_now_);
            if (options_.io_thread) start_thread();
        } catch (...) {
            table_->close(io_);
            throw;
        }
    }

    bool forked() const { return fork_guard_.forked(); }

    void close() {
        if (forked()) return;
        Lock lock(mutex_);
        if (closing_) {  // by another thread: closed when this returns, whoever does it
            changed_.wait(lock, [&] { return closed_; });
            return;
        }
        closing_ = true;
        take_role(lock);
        engine_->close(now());
        // Bounded: the goodbyes to max_peers peers, and what was queued behind them, fit in far fewer steps.
        for (int step_count = 0; step_count < 64; ++step_count)
            if (step(lock)) break;
        fail_the_rest(lock);
        stop_ = true;
        driving_ = false;
        for (Waiter* waiter : waiters_) waiter->condition.notify_one();
        role_condition_.notify_all();
        finished_condition_.notify_all();
        io_condition_.notify_all();
        changed_.wait(lock, [&] { return inside_ == 0; });
        lock.unlock();
        if (thread_.joinable()) thread_.join();
        table_->counters(io_, &final_io_);
        table_->close(io_);
        lock.lock();
        closed_ = true;
        changed_.notify_all();
    }

    // ---- peers ----

    bool connect(std::uint32_t rank, const std::string& text) {
        Lock lock = enter();
        const Inside inside(*this);
        char error[512] = "";
        dlcp_address address{};
        take_role(lock);
        lock.unlock();
        const int result = table_->resolve(io_, text.c_str(), &address, error, sizeof error);
        lock.lock();
        leave_role();
        check_usable();
        if (result < 0)
            throw HostError(HostErrorKind::address, "address '" + text + "' of rank " + std::to_string(rank) +
                                                        ": " +
                                                        (error[0] != '\0' ? error : std::strerror(-result)) +
                                                        "; write host:port, a.b.c.d:port or [v6]:port");
        const auto connected = engine_->connect(now(), rank, address);
        // A peer that came by itself may have sent from another of its ports; it stays where it answered.
        const bool came_by_itself = connected.error == CommandError::duplicate_rank && !is_in(named_, rank);
        if (!connected && !came_by_itself) throw refusal(connected.error, {.rank = rank}, options_.engine);
        const bool is_new = !is_in(ranks_, rank);
        if (!is_in(named_, rank)) named_.push_back(rank);
        note_rank(rank);
        kick(lock);
        return is_new;
    }

    void disconnect(std::uint32_t rank) {
        Lock lock = enter();
        const Inside inside(*this);
        const PeerId peer = peer_of(rank);
        if (const auto error = engine_->disconnect(now(), peer); error != CommandError::none)
            throw refusal(error, {.rank = rank}, options_.engine);
        std::erase(ranks_, rank);
        std::erase(named_, rank);
        kick(lock);
    }

    bool wait_established(std::uint32_t rank, Duration timeout) {
        Lock lock = enter();
        const Inside inside(*this);
        const auto done = [&] { return is_established(rank); };
        wait_until(lock, done, real_deadline(timeout), nullptr);
        if (!done()) check_usable();
        return done();
    }

    bool is_established(std::uint32_t rank) const {
        const auto peer = engine_->find_peer(rank);
        return peer.has_value() && engine_->established(*peer);
    }

    PeerId peer_of(std::uint32_t rank) const {
        if (const auto peer = engine_->find_peer(rank)) return *peer;
        std::string known;
        for (std::size_t i = 0; i < ranks_.size() && i < 16; ++i)
            known += (i == 0 ? "" : ", ") + std::to_string(ranks_[i]);
        if (ranks_.size() > 16) known += ", …";
        throw HostError(HostErrorKind::unknown_peer,
                        "rank " + std::to_string(rank) + " is not a peer; peers are: " +
                            (known.empty() ? "none" : known) + "; call connect(rank, address) first");
    }

    // ---- messages ----

    OperationPtr send(const HostSend& command) {
        check_length("message", command.message_bytes);
        if (command.traffic_class > 6) throw bad_class(command.traffic_class);
        Lock lock = enter();
        const Inside inside(*this);
        SendCommand engine_command;
        engine_command.peer = peer_of(command.rank);
        engine_command.tag = command.tag;
        engine_command.payload = static_cast<const std::uint8_t*>(command.payload);
        engine_command.message_bytes = static_cast<std::uint32_t>(command.message_bytes);
        engine_command.traffic_class = static_cast<std::uint8_t>(command.traffic_class);
        engine_command.delivery = command.delivery;
        engine_command.loss_ratio = command.loss_ratio;
        engine_command.deadline = command.deadline;
        std::vector<std::uint8_t> filled;
        if (command.importance != nullptr) {
            const std::uint32_t blocks = block_count(command);
            if (command.importance_count != blocks)
                throw HostError(HostErrorKind::importance,
                                "importance has " + std::to_string(command.importance_count) +
                                    " entries; a message of " + std::to_string(command.message_bytes) +
                                    " bytes to rank " + std::to_string(command.rank) + " has " +
                                    std::to_string(blocks) + " blocks of " +
                                    std::to_string(engine_->block_bytes(engine_command.peer)) +
                                    " bytes: give one entry per block");
            engine_command.importance = {command.importance, static_cast<std::size_t>(command.importance_count)};
        } else if (command.importance_of_all != wire::importance_critical) {
            filled.assign(block_count(command), command.importance_of_all);
            engine_command.importance = filled;
        }
        const auto sent = engine_->send(now(), engine_command);
        if (!sent)
            throw refusal(sent.error, {command.rank, command.loss_ratio, command.deadline}, options_.engine);
        auto operation = std::make_shared<Operation>();
        operation->sending = true;
        operation->rank = command.rank;
        operation->peer = engine_command.peer;
        operation->tag = command.tag;
        operation->capacity_bytes = engine_command.message_bytes;
        operation->on_over = command.on_over;
        begin(lock, operation, sent.value, command.wait_follows);
        return operation;
    }

    OperationPtr receive(const HostReceive& command) {
        check_length("receive buffer", command.capacity_bytes);
        Lock lock = enter();
        const Inside inside(*this);
        ReceiveCommand engine_command;
        if (command.rank) engine_command.peer = peer_of(*command.rank);
        engine_command.tag = command.tag;
        engine_command.buffer = static_cast<std::uint8_t*>(command.buffer);
        engine_command.capacity_bytes = static_cast<std::uint32_t>(command.capacity_bytes);
        const auto received = engine_->receive(now(), engine_command);
        if (!received) throw refusal(received.error, {.rank = command.rank.value_or(UINT32_MAX)}, options_.engine);
        auto operation = std::make_shared<Operation>();
        operation->rank = command.rank.value_or(UINT32_MAX);
        operation->peer = engine_command.peer;
        operation->tag = command.tag;
        operation->capacity_bytes = engine_command.capacity_bytes;
        operation->on_over = command.on_over;
        begin(lock, operation, received.value, command.wait_follows);
        return operation;
    }

    bool cancel(const OperationPtr& operation) {
        if (operation->over.load(std::memory_order_acquire)) return false;
        Lock lock = enter();
        if (closing_) return false;
        const Inside inside(*this);
        if (operation->over.load(std::memory_order_relaxed)) return false;
        const auto error = engine_->cancel(now(), operation->message);
        kick(lock);
        return error == CommandError::none;
    }

    bool wait(const OperationPtr& operation, Duration timeout) {
        if (operation->over.load(std::memory_order_acquire)) return true;
        Lock lock = enter();
        const Inside inside(*this, Inside::also_closing);
        const auto done = [&] { return operation->over.load(std::memory_order_relaxed); };
        wait_until(lock, done, real_deadline(timeout), operation.get());
        if (closing_) changed_.wait(lock, done);  // close() makes it so
        return done();
    }

    bool progress(Duration timeout) {
        Lock lock = enter();
        const Inside inside(*this);
        const std::uint64_t before = finished_count_;
        const auto done = [&] { return finished_count_ != before; };
        if (timeout.value != 0) {
            wait_until(lock, done, real_deadline(timeout), nullptr);
        } else if (!driving_ && exclusive_ == 0) {
            drive_once(lock);
        }
        return done();
    }

    bool watch(const OperationPtr& operation, std::uint64_t id) {
        Lock lock = enter();
        if (operation->over.load(std::memory_order_relaxed)) return false;
        operation->watch = id;
        return true;
    }

    std::vector<std::uint64_t> next_finished(Duration timeout) {
        Lock lock = enter();
        if (closed_) return std::exchange(finished_, {});
        const Inside inside(*this, Inside::also_closing);
        const RealTime until = real_deadline(timeout);
        while (finished_.empty() && !stop_ && RealClock::now() < until)
            sleep_until(finished_condition_, lock, until);
        return std::exchange(finished_, {});
    }

    // ---- what is known ----

    HostStatistics statistics() {
        HostStatistics out;
        Lock lock = enter();
        if (closing_) {
            changed_.wait(lock, [&] { return closed_; });
            out.io = final_io_;
        } else {
            const Inside inside(*this);
            take_role(lock);
            table_->counters(io_, &out.io);
            leave_role();
        }
        out.engine = engine_->counters();
        out.outstanding_operations = operations_.size();
        out.log_entries_dropped = log_dropped_;
        out.driver_waits = driver_waits_;
        out.role_changes = role_changes_;
        return out;
    }

    std::string peer_address(std::uint32_t rank) {
        Lock lock = enter();
        const Inside inside(*this);
        const dlcp_address address = *engine_->address_of(peer_of(rank));
        take_role(lock);
        const std::string text = format(address);
        leave_role();
        return text;
    }

    std::vector<HostLogEntry> drain_log() {
        Lock lock = enter();
        std::vector<HostLogEntry> out(log_.begin(), log_.end());
        log_.clear();
        return out;
    }

    void advance_key_epoch() {
        Lock lock = enter();
        const Inside inside(*this);
        if (const auto error = engine_->advance_key_epoch(); error != CommandError::none)
            throw refusal(error, {}, options_.engine);
    }

    // A lock for reading the engine; it stays after close().
    template <class Read>
    auto read(Read&& read) const {
        Lock lock = enter();
        return read(*engine_);
    }

    HostOptions options_;
    dlcp_io_capabilities capabilities_{};
    std::string local_address_;
    std::string warnings_;
    std::vector<std::uint32_t> ranks_;  // of peers, in the order met
    std::vector<std::uint32_t> named_;  // those that connect() has named

    bool closing() const {
        Lock lock(mutex_);
        return closing_;
    }

private:
    // A caller that sleeps until its operation is over, or until it is given the role.
    struct Waiter {
        const Operation* operation;  // nullptr: waits for something else, and looks after every event
        std::condition_variable condition;
    };

    // Counts a thread inside a call, so that close() can let it leave first. Made with the mutex held.
    class Inside {
    public:
        enum AlsoClosing { also_closing };
        explicit Inside(Impl& impl) : impl_(impl) {
            impl.check_usable();
            ++impl.inside_;
        }
        Inside(Impl& impl, AlsoClosing) : impl_(impl) { ++impl.inside_; }
        ~Inside() {
            if (--impl_.inside_ == 0 && impl_.closing_) impl_.changed_.notify_all();
        }

    private:
        Impl& impl_;
    };

    // ---- the driving role ----

    // Waits until `done`, the deadline, or closing; drives whenever nobody else does.
    template <class Done>
    void wait_until(Lock& lock, Done&& done, RealTime until, const Operation* operation) {
        Waiter waiter{operation, {}};
        ++callers_;
        while (!done() && !closing_ && (until == real_never || RealClock::now() < until)) {
            if (!driving_ && exclusive_ == 0) {
                driving_ = true;
                ++role_changes_;
                drive(
                    lock, [&] { return done() || exclusive_ > 0 || closing_; }, until);
                leave_role(true);
            } else {
                wake_driver();
                waiters_.push_back(&waiter);
                sleep_until(waiter.condition, lock, until);
                waiters_.remove(&waiter);
            }
        }
        --callers_;
        // The role may have been offered to this thread while it was leaving.
        if (!driving_) pass_role();
    }

    // Takes the role for one driver call or two, before any waiter.
    void take_role(Lock& lock) {
        ++exclusive_;
        wake_driver();
        role_condition_.wait(lock, [&] { return !driving_; });
        --exclusive_;
        driving_ = true;
    }

    // `keep_warm`: a caller drove, and is likely to come back soon.
    void leave_role(bool keep_warm = false) {
        driving_ = false;
        if (keep_warm) left_ = now();
        pass_role();
    }

    void pass_role() {
        if (driving_) return;
        if (exclusive_ > 0) {
            role_condition_.notify_all();
        } else if (!waiters_.empty()) {
            waiters_.front()->condition.notify_one();
        } else if (io_parked_) {
            io_condition_.notify_one();
        }
    }

    // Has the driving thread look again: at a command, or at who wants the role.
    void wake_driver() {
        if (!driving_) return;
        kicked_ = true;
        if (sleeping_ && !woken_) {
            woken_ = true;
            table_->wake(io_);
        }
    }

    // Has packets of a command leave now: by whoever drives, or else by this thread.
    void kick(Lock& lock) {
        if (driving_ || exclusive_ > 0 || closing_) {
            wake_driver();
        } else {
            drive_once(lock);
        }
    }

    // One round by this thread. Nobody may have the role.
    void drive_once(Lock& lock) {
        driving_ = true;
        step(lock);
        leave_role(true);
    }

    // The holder's loop. The mutex is held at entry and at return, not between.
    template <class Done>
    void drive(Lock& lock, Done&& done, RealTime until) {
        bool idle = false;
        while (!done()) {
            if (until != real_never && RealClock::now() >= until) return;
            if (idle && !kicked_) {
                sleep(lock, until);
                if (done()) return;
            }
            idle = step(lock);
        }
    }

    void sleep(Lock& lock, RealTime until) {
        const Time deadline = engine_->next_deadline();
        std::int64_t timeout_ns = -1;
        if (deadline != time_never) {
            timeout_ns = (deadline - now()).value;
            if (timeout_ns <= 0) return;
        }
        if (until != real_never) {
            const auto left =
                std::chrono::duration_cast<std::chrono::nanoseconds>(until - RealClock::now()).count();
            if (left <= 0) return;
            if (timeout_ns < 0 || left < timeout_ns) timeout_ns = left;
        }
        // The driver had no free buffer: packets are ready, so look again soon whatever the engine's deadline is.
        constexpr std::int64_t starved_ns = 1'000'000;
        if (starved_ && (timeout_ns < 0 || timeout_ns > starved_ns)) timeout_ns = starved_ns;
        ++driver_waits_;
        sleeping_ = true;
        lock.unlock();
        table_->wait(io_, timeout_ns);
        lock.lock();
        sleeping_ = false;
        woken_ = false;
    }

    // One round: receive, handle, transmit, events. True if there is nothing more to do now.
    bool step(Lock& lock) {
        const auto clock = [this] { return now(); };
        const bool more_to_receive = bursts_.receive(*engine_, lock, clock);
        if (const Time when = now(); engine_->next_deadline() <= when) engine_->handle_timer(when);
        kicked_ = false;  // whatever a command left to send is polled now
        auto transmitted = DriverBursts::Transmit::more;
        // Four bursts, then a look at what came in: acknowledgements should not wait for a whole window.
        for (int burst = 0; burst < 4 && transmitted == DriverBursts::Transmit::more; ++burst)
            transmitted = bursts_.transmit(*engine_, lock, clock);
        starved_ = transmitted == DriverBursts::Transmit::starved;
        take_events(lock);
        return !more_to_receive && transmitted != DriverBursts::Transmit::more;
    }

    void take_events(Lock& lock) {
        Event event;
        std::vector<OperationPtr> called;
        while (engine_->poll_event(event)) {
            switch (event.kind) {
                case EventKind::send_finished:
                case EventKind::send_failed:
                case EventKind::receive_finished:
                case EventKind::receive_failed: finish(event, called); break;
                case EventKind::peer_established: note_rank(engine_->rank_of(event.peer)); [[fallthrough]];
                case EventKind::peer_down:
                case EventKind::path_down:
                case EventKind::path_up:
                case EventKind::bound_reached: note(event); break;
            }
        }
        call(lock, called);
    }

    // on_over without the mutex, so that it may take locks of its own.
    void call(Lock& lock, const std::vector<OperationPtr>& operations) {
        if (operations.empty()) return;
        lock.unlock();
        for (const OperationPtr& operation : operations) operation->on_over(*operation);
        lock.lock();
    }

    void io_loop() {
        Lock lock(mutex_);
        while (!stop_) {
            if (driving_ || exclusive_ > 0 || callers_ > 0) {
                io_parked_ = true;
                io_condition_.wait(lock);
                io_parked_ = false;
                continue;
            }
            // Stay away for a moment after a caller drove: its next call then finds the role free.
            const Time due = std::min(left_ + options_.linger, engine_->next_deadline());
            if (const Duration wait = due - now(); left_.value != INT64_MIN && wait.value > 0) {
                io_condition_.wait_for(lock, std::chrono::nanoseconds(wait.value));
                continue;
            }
            left_ = Time{INT64_MIN};
            driving_ = io_drives_ = true;
            drive(
                lock, [&] { return callers_ > 0 || exclusive_ > 0 || stop_; }, real_never);
            driving_ = io_drives_ = false;
            pass_role();
        }
    }

    // ---- bookkeeping ----

    // Time as the engine wants it: never back. Called with the mutex held, so that "before" has a meaning.
    Time now() {
        last_now_ = std::max(last_now_, Time{table_->now_ns(io_)});
        return last_now_;
    }

    void begin(Lock& lock, const OperationPtr& operation, MessageId message, bool wait_follows) {
        operation->message = message;
        operations_.emplace(key_of(message), operation);
        if (!wait_follows) kick(lock);
    }

    void finish(const Event& event, std::vector<OperationPtr>& called) {
        const auto found = operations_.find(key_of(event.message));
        if (found == operations_.end()) {
            engine_->release(event.message);
            return;
        }
        const OperationPtr operation = std::move(found->second);
        operations_.erase(found);
        const bool failed = event.kind == EventKind::send_failed || event.kind == EventKind::receive_failed;
        operation->error = failed ? event.error : CommandError::none;
        operation->waited = event.waited;
        operation->tag = event.tag;
        if (event.peer != any_peer) {
            operation->peer = event.peer;
            if (!operation->sending && operation->rank == UINT32_MAX)
                operation->rank = engine_->rank_of(event.peer);
        }
        if (const auto outcome = engine_->outcome(event.message)) {
            operation->outcome = outcome.value;
            operation->abandoned.assign(outcome.value.abandoned.begin(), outcome.value.abandoned.end());
            operation->outcome.abandoned = operation->abandoned;
        }
        engine_->release(event.message);
        mark_over(operation, called);
    }

    void mark_over(const OperationPtr& operation, std::vector<OperationPtr>& called) {
        ++finished_count_;
        operation->over.store(true, std::memory_order_release);
        for (Waiter* waiter : waiters_)
            if (waiter->operation == operation.get() || waiter->operation == nullptr)
                waiter->condition.notify_one();
        if (operation->watch != 0) {
            finished_.push_back(operation->watch);
            finished_condition_.notify_one();
        }
        if (operation->on_over) called.push_back(operation);
    }

    // What the engine's close() left without a final event; nothing, unless the engine is at fault.
    void fail_the_rest(Lock& lock) {
        std::vector<OperationPtr> called;
        for (auto& [key, operation] : operations_) {
            operation->error = CommandError::closed;
            mark_over(operation, called);
        }
        operations_.clear();
        changed_.notify_all();
        call(lock, called);
    }

    void note(const Event& event) {
        if (log_.size() == log_capacity) {
            log_.pop_front();
            ++log_dropped_;
        }
        HostLogEntry entry;
        entry.time = last_now_;
        entry.kind = event.kind;
        entry.error = event.error;
        entry.rank = event.peer == any_peer ? UINT32_MAX : engine_->rank_of(event.peer);
        entry.value = event.value;
        entry.waited = event.waited;
        log_.push_back(entry);
        for (Waiter* waiter : waiters_)
            if (waiter->operation == nullptr) waiter->condition.notify_one();
    }

    void note_rank(std::uint32_t rank) {
        if (!is_in(ranks_, rank)) ranks_.push_back(rank);
    }

    void start_thread() {
        // Signals are for the application's threads: a handler must not run where nobody looks for its result.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { io_loop(); });
        } catch (const std::system_error& error) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw HostError(HostErrorKind::system, std::string("cannot start the I/O thread: ") + error.what());
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        pthread_setname_np(thread_.native_handle(), "dlcp-io");
    }

    std::string format(const dlcp_address& address) {
        char text[128] = "";
        table_->format(io_, &address, text, sizeof text);
        return text;
    }

    // ---- refusals: each names the value, the accepted range and what to do ----

    void open_driver() {
        dlcp_io_config config{};
        config.bind_host = options_.bind_host.empty() ? nullptr : options_.bind_host.c_str();
        config.interface_name = options_.interface_name.empty() ? nullptr : options_.interface_name.c_str();
        config.port = options_.port;
        config.paths = options_.engine.paths;
        config.max_datagram_bytes = options_.max_datagram_bytes;
        config.socket_buffer_bytes = options_.socket_buffer_bytes;
        config.flags = options_.io_flags;
        config.extra = options_.driver_extra.empty() ? nullptr : options_.driver_extra.c_str();
        char error[512] = "";
        const int result = table_->open(&config, &io_, error, sizeof error);
        if (result < 0) throw open_refusal(-result, error, table_->name, options_.bind_host, options_.port);
    }

    void check_max_datagram(EndpointConfig& config) const {
        if (options_.max_datagram_bytes > UINT16_MAX)
            throw HostError(HostErrorKind::settings,
                            "max_datagram_bytes is " + std::to_string(options_.max_datagram_bytes) +
                                "; accepted: 576 to 9152, or 0 for what the driver carries");
        config.max_datagram_bytes = static_cast<std::uint16_t>(options_.max_datagram_bytes);
    }

    static void refuse_if(const std::string& complaint) {
        if (!complaint.empty()) throw HostError(HostErrorKind::settings, complaint);
    }

    void refuse_unauthenticated() const {
        if (capabilities_.is_loopback != 0 || options_.engine.job_key || options_.allow_unauthenticated) return;
        throw HostError(
            HostErrorKind::unauthenticated,
            "no job key, and other hosts can reach " +
                (options_.bind_host.empty() ? std::string("this address") : options_.bind_host) +
                ": whoever can send there could forge gradients; give a key file, bind to loopback, or "
                "allow unauthenticated peers explicitly");
    }

    // How many blocks a message has; known once the handshake is over.
    std::uint32_t block_count(const HostSend& command) const {
        const PeerId peer = peer_of(command.rank);
        if (!engine_->established(peer))
            throw HostError(HostErrorKind::not_established,
                            "rank " + std::to_string(command.rank) +
                                " has not answered yet, so the block size is not known; wait for the handshake "
                                "before sending what may be lost");
        return wire::block_count(static_cast<std::uint32_t>(command.message_bytes), engine_->block_bytes(peer));
    }

    // The mutex; asked before it is locked, since in a forked child nobody may be there to free it.
    Lock enter() const {
        if (forked()) throw forked_refusal();
        return Lock(mutex_);
    }

    void check_usable() const {
        if (closing_) throw closed_refusal(options_.engine.rank);
    }

    static void check_length(const char* what, std::uint64_t bytes) {
        if (bytes > UINT32_MAX)
            throw HostError(HostErrorKind::message_too_long, std::string(what) + " has " + std::to_string(bytes) +
                                                                 " bytes; at most " + std::to_string(UINT32_MAX) +
                                                                 " (4 GiB - 1): split it into several messages");
    }

    static HostError bad_class(std::uint32_t traffic_class) {
        return {HostErrorKind::traffic_class,
                "traffic class is " + std::to_string(traffic_class) + "; accepted: 0 to 6, 6 leaves first"};
    }

    const dlcp_io_table* table_ = nullptr;
    dlcp_io* io_ = nullptr;
    ForkGuard fork_guard_;

    mutable std::mutex mutex_;
    std::unique_ptr<Endpoint> engine_;
    std::unordered_map<std::uint64_t, OperationPtr> operations_;  // under way, by key_of(message)
    std::deque<HostLogEntry> log_;
    std::uint64_t log_dropped_ = 0;
    std::vector<std::uint64_t> finished_;  // watched operations that are over, not yet asked for
    std::uint64_t finished_count_ = 0;
    Time last_now_{INT64_MIN};

    // The role and who wants it.
    bool driving_ = false;    // somebody has it
    bool io_drives_ = false;  // … the I/O thread
    bool sleeping_ = false;   // … and is in the driver's wait()
    bool woken_ = false;      // … out of which it has been called
    bool kicked_ = false;     // … and has something new to look at
    bool starved_ = false;    // … and got no buffers when last asked
    int callers_ = 0;         // callers that wait, driving or not
    int exclusive_ = 0;       // callers that want the role for a driver call
    std::list<Waiter*> waiters_;
    std::condition_variable role_condition_;
    std::condition_variable finished_condition_;
    Time left_{INT64_MIN};  // when a caller last left the role; INT64_MIN: the I/O thread has had it since

    std::thread thread_;
    std::condition_variable io_condition_;
    bool io_parked_ = false;  // the I/O thread sleeps until told
    bool stop_ = false;

    int inside_ = 0;  // threads inside a call
    bool closing_ = false;
    bool closed_ = false;
    std::condition_variable changed_;  // closing_, and: operations are over, inside_ became 0, or closed_ true
    dlcp_io_counters final_io_{};

    std::uint64_t driver_waits_ = 0;
    std::uint64_t role_changes_ = 0;

    DriverBursts bursts_;  // the holder's alone
};

Host::Host(const HostOptions& options) : impl_(std::make_unique<Impl>(options)) { impl_->open(); }

Host::~Host() {
    // A forked child's copy: its mutex may be held, and its thread is not there. Leave it all to the exit.
    if (impl_->forked()) {
        static_cast<void>(impl_.release());
        return;
    }
    impl_->close();
}

bool Host::connect(std::uint32_t rank, const std::string& address) { return impl_->connect(rank, address); }
void Host::disconnect(std::uint32_t rank) { impl_->disconnect(rank); }
bool Host::wait_established(std::uint32_t rank, Duration timeout) {
    return impl_->wait_established(rank, timeout);
}
bool Host::established(std::uint32_t rank) const {
    return impl_->read([&](const Endpoint&) { return impl_->is_established(rank); });
}
std::vector<std::uint32_t> Host::peers() const {
    return impl_->read([&](const Endpoint&) { return impl_->ranks_; });
}
std::uint16_t Host::block_bytes(std::uint32_t rank) const {
    return impl_->read([&](const Endpoint& engine) { return engine.block_bytes(impl_->peer_of(rank)); });
}
std::string Host::peer_address(std::uint32_t rank) { return impl_->peer_address(rank); }

OperationPtr Host::send(const HostSend& command) { return impl_->send(command); }
OperationPtr Host::receive(const HostReceive& command) { return impl_->receive(command); }
bool Host::cancel(const OperationPtr& operation) { return impl_->cancel(operation); }
bool Host::wait(const OperationPtr& operation, Duration timeout) { return impl_->wait(operation, timeout); }
bool Host::progress(Duration timeout) { return impl_->progress(timeout); }
bool Host::watch(const OperationPtr& operation, std::uint64_t id) { return impl_->watch(operation, id); }
std::vector<std::uint64_t> Host::next_finished(Duration timeout) { return impl_->next_finished(timeout); }

std::vector<HostLogEntry> Host::drain_log() { return impl_->drain_log(); }
HostStatistics Host::statistics() { return impl_->statistics(); }
PeerStatistics Host::peer_statistics(std::uint32_t rank) const {
    return impl_->read([&](const Endpoint& engine) { return engine.peer_statistics(impl_->peer_of(rank)); });
}
std::vector<PathStatistics> Host::path_statistics(std::uint32_t rank) const {
    return impl_->read([&](const Endpoint& engine) {
        std::vector<PathStatistics> out(64);  // EndpointConfig::paths is at most this
        out.resize(std::min(out.size(), engine.path_statistics(impl_->peer_of(rank), out)));
        return out;
    });
}
void Host::advance_key_epoch() { impl_->advance_key_epoch(); }

const std::string& Host::driver_name() const { return impl_->options_.driver; }
const std::string& Host::local_address() const { return impl_->local_address_; }
const std::string& Host::warnings() const { return impl_->warnings_; }
const dlcp_io_capabilities& Host::capabilities() const { return impl_->capabilities_; }
const EndpointConfig& Host::config() const { return impl_->options_.engine; }
bool Host::closed() const { return impl_->forked() || impl_->closing(); }

void Host::close() { impl_->close(); }

}  // namespace dlcp

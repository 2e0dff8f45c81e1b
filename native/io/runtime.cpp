#include "io/runtime.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "engine/wire.hpp"
#include "io/driving_role.hpp"
#include "io/engine_pump.hpp"
#include "io/fork_guard.hpp"
#include "io/open_driver.hpp"
#include "io/patience.hpp"
#include "io/real_time.hpp"

namespace dlcp {
namespace {

using Lock = std::unique_lock<std::mutex>;
std::uint64_t entropy() {
    std::uint64_t seed = 0;
    auto* bytes = reinterpret_cast<std::uint8_t*>(&seed);
    for (std::size_t have = 0; have < sizeof seed;) {
        const ssize_t got = getrandom(bytes + have, sizeof seed - have, 0);
        if (got > 0) {
            have += static_cast<std::size_t>(got);
        } else if (errno != EINTR) {
            throw RuntimeError(RuntimeErrorKind::system,
                               std::string("getrandom: ") + std::strerror(errno) + "; session ids need entropy");
        }
    }
    return seed;
}

// A MessageId as one number, to look it up.
std::uint64_t key_of(MessageId message) { return std::uint64_t{message.generation} << 32 | message.slot; }

}  // namespace

class Runtime::Impl {
public:
    explicit Impl(const RuntimeOptions& options) : options_(options), role_(pump_, options.linger) {}

    // ---- opening and closing ----

    void open() {
        // Spraying is for networks with several ways; loopback has one, and long runs cost less there.
        const bool choose_paths = options_.engine.paths == 0;
        if (choose_paths) options_.engine.paths = EndpointConfig().paths;
        EndpointConfig config = options_.engine;
        // Before the driver: a mistake in the settings should not need a free port to be found.
        if (options_.max_datagram_bytes != 0) check_max_datagram(config);
        refuse_if(config.validate());
        driver_.emplace(options_);
        const dlcp_io_capabilities& capabilities = driver_->capabilities();
        refuse_unauthenticated();
        if (choose_paths && capabilities.is_loopback) config.paths = 1;
        constexpr std::uint32_t engine_max_datagram_bytes = 9152;
        config.max_datagram_bytes = static_cast<std::uint16_t>(
            std::min({capabilities.max_datagram_bytes, engine_max_datagram_bytes,
                      options_.max_datagram_bytes != 0 ? options_.max_datagram_bytes : UINT32_MAX}));
        if (options_.receive_buffer_bytes != 0) {
            config.receive_buffer = Bytes{options_.receive_buffer_bytes};
        } else if (capabilities.receive_buffer_bytes != 0) {
            config.receive_buffer = Bytes{capabilities.receive_buffer_bytes};
        }
        if (capabilities.channel_buffer_bytes != 0)
            config.channel_buffer = Bytes{capabilities.channel_buffer_bytes};
        refuse_if(config.validate());
        options_.engine = config;
        capabilities_ = capabilities;
        local_address_ = driver_->local_address();
        warnings_ = driver_->warnings();
        pump_.open(driver_->table(), driver_->io(), capabilities_.max_burst_packets);
        engine_ = std::make_unique<Endpoint>(config, options_.seed != 0 ? options_.seed : entropy(), pump_.now());
        collectives_ = std::make_unique<Collectives>(*engine_);
        pump_.set_engine(*engine_, collectives_->executor());
        if (options_.io_thread) start_thread();
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
        role_.take(lock);
        const RealTime drained_by = real_deadline(options_.close_timeout);
        collectives_->executor().stop_waiting(pump_.now());
        drive(
            lock, [&] { return !collectives_->executor().draining(); }, drained_by);
        collectives_->executor().stop_waiting(pump_.now());  // a peer may have left meanwhile
        engine_->close(pump_.now());
        // Bounded: the goodbyes to max_peers peers, and what was queued behind them, fit in far fewer rounds.
        for (int rounds = 0; rounds < 64; ++rounds)
            if (round(lock)) break;
        fail_the_rest(lock);
        stop_ = true;
        role_.leave();
        role_.notify_all();
        finished_condition_.notify_all();
        changed_.wait(lock, [&] { return inside_ == 0; });
        lock.unlock();
        if (thread_.joinable()) thread_.join();
        final_io_ = driver_->counters();
        final_injected_lost_packets_ = driver_->injected_lost_packets();
        driver_.reset();
        lock.lock();
        closed_ = true;
        changed_.notify_all();
    }

    // ---- peers ----

    bool connect(std::uint32_t rank, const std::string& text) {
        Lock lock = enter();
        const Inside inside(*this);
        const dlcp_address address = resolve(lock, text, rank);
        const auto known = peers_.find(rank);
        const bool is_new = known == peers_.end() || !known->second.here;
        const bool came_by_itself = !is_new && !known->second.named;
        const auto connected = engine_->connect(pump_.now(), rank, address);
        // A peer that came by itself may have sent from another of its ports; it stays where it answered.
        if (!connected && !(came_by_itself && connected.error == CommandError::duplicate_rank))
            throw refusal(connected.error, {.rank = rank}, options_.engine);
        if (is_new) note_peer(rank, connected.value);
        peers_[rank].named = true;
        kick(lock);
        return is_new;
    }

    void disconnect(std::uint32_t rank) {
        Lock lock = enter();
        const Inside inside(*this);
        const PeerId peer = peer_of(rank);
        if (const auto error = engine_->disconnect(pump_.now(), peer); error != CommandError::none)
            throw refusal(error, {.rank = rank}, options_.engine);
        std::erase(ranks_, rank);
        peers_[rank] = {.id = peer, .here = false};
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
        const auto found = peers_.find(rank);
        return found != peers_.end() && found->second.here && engine_->established(found->second.id);
    }

    PeerId peer_of(std::uint32_t rank) const {
        if (const auto found = peers_.find(rank); found != peers_.end()) {
            if (found->second.here) return found->second.id;
        } else if (const auto peer = engine_->find_peer(rank)) {
            return *peer;  // it came by itself, and the handshake is not over
        }
        throw unknown_peer_refusal(rank, ranks_);
    }

    // ---- messages ----

    OperationPtr send(const RuntimeSend& command) {
        if (command.message_bytes > UINT32_MAX) throw too_long_refusal("message", command.message_bytes);
        if (command.traffic_class > 6) throw class_refusal(command.traffic_class);
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
                throw importance_refusal(command.importance_count, blocks, command.rank, command.message_bytes);
            engine_command.importance = {command.importance, static_cast<std::size_t>(command.importance_count)};
        } else if (command.importance_of_all != wire::importance_critical) {
            filled.assign(block_count(command), command.importance_of_all);
            engine_command.importance = filled;
        }
        const auto sent = engine_->send(pump_.now(), engine_command);
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

    OperationPtr receive(const RuntimeReceive& command) {
        if (command.capacity_bytes > UINT32_MAX) throw too_long_refusal("receive buffer", command.capacity_bytes);
        Lock lock = enter();
        const Inside inside(*this);
        ReceiveCommand engine_command;
        if (command.rank) engine_command.peer = peer_of(*command.rank);
        engine_command.tag = command.tag;
        engine_command.buffer = static_cast<std::uint8_t*>(command.buffer);
        engine_command.capacity_bytes = static_cast<std::uint32_t>(command.capacity_bytes);
        const auto received = engine_->receive(pump_.now(), engine_command);
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
        const auto error = engine_->cancel(pump_.now(), operation->message);
        kick(lock);
        return error == CommandError::none;
    }

    bool progress(Duration timeout) {
        Lock lock = enter();
        const Inside inside(*this);
        const std::uint64_t before = finished_count_;
        const auto done = [&] { return finished_count_ != before; };
        if (timeout.value != 0) {
            wait_until(lock, done, real_deadline(timeout), nullptr);
        } else if (!role_.taken()) {
            drive_once(lock);
        }
        return done();
    }

    // ---- collectives ----

    bool open_group(std::uint32_t group, const std::vector<std::uint32_t>& members, std::uint32_t own) {
        Lock lock = enter();
        const Inside inside(*this);
        return collectives_->executor().open_group(pump_.now(), group, members, own);
    }

    void close_group(std::uint32_t group, bool tell) {
        Lock lock = enter();
        if (closing_) return;
        const Inside inside(*this);
        collectives_->executor().close_group(pump_.now(), group, tell);
        kick(lock);
    }

    template <class Command>
    CollectivePtr start(const Command& command, bool wait_follows) {
        Lock lock = enter();
        const Inside inside(*this);
        CollectivePtr operation = collectives_->start(pump_.now(), command);
        if (wait_follows)
            flush(lock);
        else
            kick(lock);
        return operation;
    }

    template <class AnyOperation>
    bool wait(const std::shared_ptr<AnyOperation>& operation, Duration timeout) {
        if (operation->over.load(std::memory_order_acquire)) return true;
        Lock lock = enter();
        const Inside inside(*this, Inside::also_closing);
        const auto done = [&] { return operation->over.load(std::memory_order_relaxed); };
        wait_until(lock, done, real_deadline(timeout), operation.get());
        if (closing_) changed_.wait(lock, done);  // close() makes it so
        return done();
    }

    template <class AnyOperation>
    bool watch(const std::shared_ptr<AnyOperation>& operation, std::uint64_t id) {
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
        while (finished_.empty() && !stop_ && !has_passed(until)) sleep_until(finished_condition_, lock, until);
        return std::exchange(finished_, {});
    }

    // ---- what is known ----

    RuntimeStatistics statistics() {
        RuntimeStatistics out;
        Lock lock = enter();
        if (closing_) {
            changed_.wait(lock, [&] { return closed_; });
            out.io = final_io_;
            out.injected_lost_packets = final_injected_lost_packets_;
        } else {
            const Inside inside(*this);
            role_.take(lock);
            out.io = driver_->counters();
            role_.leave();
            out.injected_lost_packets = driver_->injected_lost_packets();
        }
        out.engine = engine_->counters();
        out.outstanding_operations = operations_.size();
        out.log_entries_dropped = log_.dropped();
        out.driver_waits = pump_.sleeps();
        out.role_changes = role_.changes();
        return out;
    }

    std::vector<std::pair<std::string, std::uint64_t>> driver_statistics() {
        Lock lock = enter();
        if (closing_) return {};
        const Inside inside(*this);
        role_.take(lock);
        auto out = driver_->statistics();
        role_.leave();
        return out;
    }

    PeerStatistics peer_statistics(std::uint32_t rank) {
        Lock lock = enter();
        PeerStatistics out = engine_->peer_statistics(peer_of(rank));
        if (!closing_ && out.last_heard > Time{0}) out.silent = pump_.now() - out.last_heard;
        return out;
    }

    std::string peer_address(std::uint32_t rank) {
        Lock lock = enter();
        const Inside inside(*this);
        const dlcp_address address = *engine_->address_of(peer_of(rank));
        role_.take(lock);
        const std::string text = driver_->format(address);
        role_.leave();
        return text;
    }

    std::vector<RuntimeLogEntry> drain_log() {
        Lock lock = enter();
        return log_.drain();
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

    RuntimeOptions options_;
    dlcp_io_capabilities capabilities_{};
    std::string local_address_;
    std::string warnings_;
    std::vector<std::uint32_t> ranks_;  // of peers_, in the order met

    bool closing() const {
        Lock lock(mutex_);
        return closing_;
    }

private:
    struct Peer {
        PeerId id;
        bool named = false;  // by connect()
        bool here = true;    // not disconnected since
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

    // ---- driving ----

    // Waits until `done`, the deadline, or closing; drives whenever nobody else does.
    template <class Done>
    void wait_until(Lock& lock, Done&& done, RealTime until, const void* operation) {
        const auto drive = [&](Lock&, auto&& stop) { drive_patiently(lock, stop, until); };
        role_.wait_until(
            lock, [&] { return done() || closing_; }, until, operation, drive);
    }

    // The loop of whoever has the role.
    template <class Stop>
    void drive(Lock& lock, Stop&& stop, RealTime until) {
        while (!stop() && !has_passed(until))
            if (round(lock) && !stop()) pump_.sleep(lock, until);
    }

    // The same for a caller, who is better served by looking a little longer than by sleeping a little.
    template <class Stop>
    void drive_patiently(Lock& lock, Stop&& stop, RealTime until) {
        while (!stop() && !has_passed(until)) {
            if (!round(lock)) {
                patience_.was_busy();
            } else if (!stop()) {
                const Time before = pump_.now();
                if (patience_.look_again(before)) {
                    lock.unlock();
                    Patience::pause();
                    lock.lock();
                } else {
                    pump_.sleep(lock, until);
                    patience_.slept(pump_.now() - before);
                }
            }
        }
        patience_.was_busy();
    }

    // One round by this thread. Nobody may have the role.
    void drive_once(Lock& lock) {
        role_.take_free();
        round(lock);
        role_.leave_warm();
    }

    // Has packets of a command leave now: by whoever drives, or else by this thread.
    void kick(Lock& lock) {
        if (role_.taken() || closing_) {
            role_.interrupt();
        } else {
            drive_once(lock);
        }
    }

    // As kick, where the caller is about to drive anyway: its packets travel while it gets round to that.
    void flush(Lock& lock) {
        if (role_.taken() || closing_) {
            role_.interrupt();
            return;
        }
        role_.take_free();
        pump_.flush(lock);
        role_.leave_warm();
    }

    // True if there is nothing more to do now.
    bool round(Lock& lock) {
        const bool idle = pump_.round(lock);
        if (driver_->table().events != nullptr) take_driver_events(lock);
        take_events(lock);
        return idle;
    }

    void serve() {
        // The kernel's default lets a sleep run 50 us over: longer than a data centre's round trip.
        prctl(PR_SET_TIMERSLACK, 1UL);
        Lock lock(mutex_);
        role_.serve(
            lock, [&] { return stop_; }, [&](Lock&, auto&& stop) { drive(lock, stop, real_never); },
            [&] { return pump_.next_deadline(); });
    }

    void take_driver_events(Lock& lock) {
        dlcp_io_event events[8];
        lock.unlock();
        const int count = driver_->table().events(driver_->io(), events, 8);
        lock.lock();
        for (int i = 0; i < count; ++i) note(log_entry(events[i]));
    }

    void take_events(Lock& lock) {
        Event event;
        std::vector<OperationPtr> called;
        while (engine_->poll_event(event)) {
            if (collectives_->executor().handle_event(pump_.now(), event)) continue;
            switch (event.kind) {
                case EventKind::send_finished:
                case EventKind::send_failed:
                case EventKind::receive_finished:
                case EventKind::receive_failed: finish(event, called); break;
                case EventKind::peer_established:
                    note_peer(engine_->rank_of(event.peer), event.peer);
                    [[fallthrough]];
                case EventKind::peer_down:
                case EventKind::path_down:
                case EventKind::path_up:
                case EventKind::bound_reached:
                    note(log_entry(event, pump_.last_now(),
                                   event.peer == any_peer ? UINT32_MAX : engine_->rank_of(event.peer)));
                    break;
                case EventKind::message_unexpected: break;
            }
        }
        for (const CollectivePtr& operation : collectives_->take_over()) tell_over(*operation);
        call(lock, called);
    }

    // on_over without the mutex, so that it may take locks of its own.
    void call(Lock& lock, const std::vector<OperationPtr>& operations) {
        if (operations.empty()) return;
        lock.unlock();
        for (const OperationPtr& operation : operations) operation->on_over(*operation);
        lock.lock();
    }

    // ---- bookkeeping ----

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

    template <class AnyOperation>
    void tell_over(AnyOperation& operation) {
        ++finished_count_;
        operation.over.store(true, std::memory_order_release);
        role_.notify(&operation);
        if (operation.watch != 0) {
            finished_.push_back(operation.watch);
            finished_condition_.notify_one();
        }
    }

    void mark_over(const OperationPtr& operation, std::vector<OperationPtr>& called) {
        tell_over(*operation);
        if (operation->on_over) called.push_back(operation);
    }

    // What stop_waiting() and the engine's close() left without an end; nothing, unless executor or engine is at fault.
    // Whoever waits for it would wait for ever, and close() for him.
    void fail_the_rest(Lock& lock) {
        for (const CollectivePtr& operation : collectives_->give_up()) tell_over(*operation);
        std::vector<OperationPtr> called;
        for (auto& [key, operation] : operations_) {
            operation->error = CommandError::closed;
            mark_over(operation, called);
        }
        operations_.clear();
        changed_.notify_all();
        call(lock, called);
    }

    void note(RuntimeLogEntry entry) {
        log_.append(std::move(entry));
        role_.notify(nullptr);
    }

    void note_peer(std::uint32_t rank, PeerId id) {
        Peer& peer = peers_.try_emplace(rank, Peer{.id = id, .here = false}).first->second;
        if (!peer.here) ranks_.push_back(rank);
        peer.here = true;
    }

    void start_thread() {
        // Signals are for the application's threads: a handler must not run where nobody looks for its result.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { serve(); });
        } catch (const std::system_error& error) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw RuntimeError(RuntimeErrorKind::system,
                               std::string("cannot start the I/O thread: ") + error.what());
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        pthread_setname_np(thread_.native_handle(), "dlcp-io");
    }

    // A name is looked up without the mutex.
    dlcp_address resolve(Lock& lock, const std::string& text, std::uint32_t rank) {
        role_.take(lock);
        lock.unlock();
        dlcp_address address{};
        std::optional<RuntimeError> refused;
        try {
            address = driver_->resolve(text, rank);
        } catch (const RuntimeError& error) {
            refused = error;
        }
        lock.lock();
        role_.leave();
        check_usable();
        if (refused) throw *refused;
        return address;
    }

    // ---- refusals: each names the value, the accepted range and what to do ----

    void check_max_datagram(EndpointConfig& config) const {
        if (options_.max_datagram_bytes > UINT16_MAX)
            throw RuntimeError(RuntimeErrorKind::settings,
                               "max_datagram_bytes is " + std::to_string(options_.max_datagram_bytes) +
                                   "; accepted: 576 to 9152, or 0 for what the driver carries");
        config.max_datagram_bytes = static_cast<std::uint16_t>(options_.max_datagram_bytes);
    }

    static void refuse_if(const std::string& complaint) {
        if (!complaint.empty()) throw RuntimeError(RuntimeErrorKind::settings, complaint);
    }

    void refuse_unauthenticated() const {
        if (driver_->capabilities().is_loopback != 0 || options_.engine.job_key || options_.allow_unauthenticated)
            return;
        throw unauthenticated_refusal(options_.bind_host);
    }

    // How many blocks a message has; known once the handshake is over.
    std::uint32_t block_count(const RuntimeSend& command) const {
        const PeerId peer = peer_of(command.rank);
        if (!engine_->established(peer)) throw not_established_refusal(command.rank);
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

    std::optional<OpenDriver> driver_;  // from open() to close()
    ForkGuard fork_guard_;

    mutable std::mutex mutex_;
    std::unique_ptr<Endpoint> engine_;
    std::unordered_map<std::uint64_t, OperationPtr> operations_;  // under way, by key_of(message)
    RuntimeLog log_;
    std::vector<std::uint64_t> finished_;  // watched operations that are over, not yet asked for
    std::uint64_t finished_count_ = 0;
    std::condition_variable finished_condition_;
    std::unordered_map<std::uint32_t, Peer> peers_;  // by rank

    std::unique_ptr<Collectives> collectives_;
    EnginePump pump_;
    DrivingRole role_;
    Patience patience_;  // of the callers that drive
    std::thread thread_;
    bool stop_ = false;

    int inside_ = 0;  // threads inside a call
    bool closing_ = false;
    bool closed_ = false;
    std::condition_variable changed_;  // closing_, and: operations are over, inside_ became 0, or closed_ true
    // Of the driver when it was closed.
    dlcp_io_counters final_io_{};
    std::uint64_t final_injected_lost_packets_ = 0;
};

Runtime::Runtime(const RuntimeOptions& options) : impl_(std::make_unique<Impl>(options)) { impl_->open(); }

Runtime::~Runtime() {
    // A forked child's copy: its mutex may be held, and its thread is not there. Leave it all to the exit.
    if (impl_->forked()) {
        static_cast<void>(impl_.release());
        return;
    }
    impl_->close();
}

bool Runtime::connect(std::uint32_t rank, const std::string& address) { return impl_->connect(rank, address); }
void Runtime::disconnect(std::uint32_t rank) { impl_->disconnect(rank); }
bool Runtime::wait_established(std::uint32_t rank, Duration timeout) {
    return impl_->wait_established(rank, timeout);
}
bool Runtime::established(std::uint32_t rank) const {
    return impl_->read([&](const Endpoint&) { return impl_->is_established(rank); });
}
std::vector<std::uint32_t> Runtime::peers() const {
    return impl_->read([&](const Endpoint&) { return impl_->ranks_; });
}
std::uint16_t Runtime::block_bytes(std::uint32_t rank) const {
    return impl_->read([&](const Endpoint& engine) { return engine.block_bytes(impl_->peer_of(rank)); });
}
std::string Runtime::peer_address(std::uint32_t rank) { return impl_->peer_address(rank); }

OperationPtr Runtime::send(const RuntimeSend& command) { return impl_->send(command); }
OperationPtr Runtime::receive(const RuntimeReceive& command) { return impl_->receive(command); }
bool Runtime::cancel(const OperationPtr& operation) { return impl_->cancel(operation); }
bool Runtime::wait(const OperationPtr& operation, Duration timeout) { return impl_->wait(operation, timeout); }
bool Runtime::progress(Duration timeout) { return impl_->progress(timeout); }
bool Runtime::open_group(std::uint32_t group, const std::vector<std::uint32_t>& members, std::uint32_t own) {
    return impl_->open_group(group, members, own);
}
void Runtime::close_group(std::uint32_t group, bool tell) { impl_->close_group(group, tell); }
CollectivePtr Runtime::start(const CollectiveCommand& command, bool wait_follows) {
    return impl_->start(command, wait_follows);
}
CollectivePtr Runtime::start(const MessageCommand& command, bool wait_follows) {
    return impl_->start(command, wait_follows);
}
bool Runtime::wait(const CollectivePtr& operation, Duration timeout) { return impl_->wait(operation, timeout); }
bool Runtime::watch(const CollectivePtr& operation, std::uint64_t id) { return impl_->watch(operation, id); }
bool Runtime::watch(const OperationPtr& operation, std::uint64_t id) { return impl_->watch(operation, id); }
std::vector<std::uint64_t> Runtime::next_finished(Duration timeout) { return impl_->next_finished(timeout); }

std::vector<RuntimeLogEntry> Runtime::drain_log() { return impl_->drain_log(); }
RuntimeStatistics Runtime::statistics() { return impl_->statistics(); }
std::vector<std::pair<std::string, std::uint64_t>> Runtime::driver_statistics() {
    return impl_->driver_statistics();
}
PeerStatistics Runtime::peer_statistics(std::uint32_t rank) const { return impl_->peer_statistics(rank); }
std::vector<PathStatistics> Runtime::path_statistics(std::uint32_t rank) const {
    return impl_->read([&](const Endpoint& engine) {
        std::vector<PathStatistics> out(64);  // EndpointConfig::paths is at most this
        out.resize(std::min(out.size(), engine.path_statistics(impl_->peer_of(rank), out)));
        return out;
    });
}
void Runtime::advance_key_epoch() { impl_->advance_key_epoch(); }

const std::string& Runtime::driver_name() const { return impl_->options_.driver; }
const std::string& Runtime::local_address() const { return impl_->local_address_; }
const std::string& Runtime::warnings() const { return impl_->warnings_; }
const dlcp_io_capabilities& Runtime::capabilities() const { return impl_->capabilities_; }
const EndpointConfig& Runtime::config() const { return impl_->options_.engine; }
bool Runtime::closed() const { return impl_->forked() || impl_->closing(); }

void Runtime::close() { impl_->close(); }

}  // namespace dlcp

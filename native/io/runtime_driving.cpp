// What a runtime's driving thread does: rounds of the pump, and what they made happen.
#include <sys/prctl.h>

#include "io/runtime.hpp"

namespace dlcp {
namespace {

// A MessageId as one number, to look it up.
std::uint64_t key_of(MessageId message) { return std::uint64_t{message.generation} << 32 | message.slot; }

}  // namespace

// The I/O thread.
void Runtime::serve() {
    // The kernel's default lets a sleep run 50 us over: longer than a data centre's round trip.
    prctl(PR_SET_TIMERSLACK, 1UL);
    Lock lock(mutex_);
    role_.serve(
        lock, [&] { return stop_; },
        [&](Lock&, auto&& stop) {
            if (!at_rest()) habit_.was_left();
            drive(lock, stop, real_never);
        },
        [&] { return at_rest(); }, [&] { return pump_.next_deadline(); });
}

void Runtime::look_or_sleep(Lock& lock, RealTime until) {
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

// One round by this thread. Nobody may have the role.
void Runtime::drive_once(Lock& lock) {
    role_.take_free();
    round(lock);
    role_.leave_warm();
    call_io();
}

// Nothing is under way here. Copies whose packets have all left are no reason to be awake: their acknowledgements come
// with what the next call brings.
bool Runtime::at_rest() const {
    return operations_.empty() && collectives_->under_way() == 0 && !engine_->has_queued();
}

// A caller has driven: what is under way beyond its own call is the I/O thread's.
void Runtime::call_io() {
    if (role_.io_rests() && !role_.taken() && !at_rest()) role_.call_io();
}

// Has packets of a command leave now: by whoever drives, or else by this thread.
void Runtime::kick(Lock& lock) {
    if (role_.taken() || closing_)
        role_.interrupt();
    else
        drive_once(lock);
}

// As kick, where the caller is about to drive anyway: its packets travel while it gets round to that.
void Runtime::flush(Lock& lock) {
    if (role_.taken() || closing_) {
        role_.interrupt();
        return;
    }
    role_.take_free();
    pump_.flush(lock);
    role_.leave_warm();
}

// True if there is nothing more to do now.
bool Runtime::round(Lock& lock) {
    const bool idle = pump_.round(lock);
    if (driver_->has_events()) take_driver_events(lock);
    take_events();
    return idle;
}

void Runtime::take_driver_events(Lock& lock) {
    dlcp_io_event events[8];
    lock.unlock();
    const int count = driver_->events(events, 8);
    lock.lock();
    for (int i = 0; i < count; ++i) note(log_entry(events[i]));
}

void Runtime::take_events() {
    Event event;
    while (engine_->poll_event(event)) {
        if (collectives_->executor().handle_event(pump_.now(), event)) continue;
        switch (event.kind) {
            case EventKind::send_finished:
            case EventKind::send_failed:
            case EventKind::receive_finished:
            case EventKind::receive_failed: finish(event); break;
            case EventKind::peer_established: note_peer(engine_->rank_of(event.peer), event.peer); [[fallthrough]];
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
    for (const CollectivePtr& operation : collectives_->take_over()) mark_over(*operation);
}

OperationPtr Runtime::begin(Lock& lock, std::uint32_t rank, PeerId peer, std::uint64_t tag, MessageId message,
                            bool sending, bool wait_follows) {
    auto operation = std::make_shared<Operation>();
    operation->sending = sending;
    operation->rank = rank;
    operation->peer = peer;
    operation->tag = tag;
    operation->message = message;
    operations_.emplace(key_of(message), operation);
    if (!wait_follows) kick(lock);
    return operation;
}

void Runtime::finish(const Event& event) {
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
        if (!operation->sending && operation->rank == UINT32_MAX) operation->rank = engine_->rank_of(event.peer);
    }
    if (const auto outcome = engine_->outcome(event.message)) {
        operation->outcome = outcome.value;
        operation->abandoned.assign(outcome.value.abandoned.begin(), outcome.value.abandoned.end());
        operation->outcome.abandoned = operation->abandoned;
    }
    engine_->release(event.message);
    mark_over(*operation);
}

template <class AnyOperation>
void Runtime::mark_over(AnyOperation& operation) {
    ++finished_count_;
    operation.over.store(true, std::memory_order_release);
    role_.notify(&operation);
    if (operation.watch != 0) {
        finished_.push_back(operation.watch);
        finished_condition_.notify_one();
    }
}

// What stop_waiting() and the engine's close() left without an end; nothing, unless executor or engine is at fault. A
// caller that waits for it would wait for ever, and close() for that caller.
void Runtime::end_operations() {
    for (const CollectivePtr& operation : collectives_->give_up()) mark_over(*operation);
    for (auto& [key, operation] : operations_) {
        operation->error = CommandError::closed;
        mark_over(*operation);
    }
    operations_.clear();
    changed_.notify_all();
}

void Runtime::note(RuntimeLogEntry entry) {
    log_.append(std::move(entry));
    role_.notify(nullptr);
}

}  // namespace dlcp

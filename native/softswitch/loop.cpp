#include "softswitch/loop.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "softswitch/clock.hpp"

namespace dlcp::softswitch {
namespace {

using namespace std::chrono_literals;

// Lines are not served more often than this; frames due in between leave together. Otherwise a fast line would spend
// its time on wake-ups of a microsecond each.
constexpr Time tick = 50us;
constexpr std::size_t round_frames = 256;  // between two looks at what else there is to do
constexpr Time capture_flush = 200ms;
constexpr Time look_every = 5ms;  // at links, while frames never cease

}  // namespace

Loop::Loop(Core& core, std::vector<std::unique_ptr<Port>> ports, bool busy_poll)
    : core_(core),
      ports_(std::move(ports)),
      busy_poll_(busy_poll),
      batches_(ports_.size()),
      held_down_(ports_.size()),
      captures_(ports_.size()),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (wake_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    for (const auto& port : ports_) polled_.push_back({port->descriptor(), POLLIN, 0});
    watch_links();
    polled_.push_back({links_.get(), POLLIN, 0});
    polled_.push_back({wake_.get(), POLLIN, 0});
    check_links();
}

void Loop::run() {
    prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread; 50 us otherwise, half a frame of 100 Mbit/s
    const Running running(*this);
    while (!stopped_.load(std::memory_order_relaxed)) {
        if (has_work_.load(std::memory_order_acquire)) work_off();
        const Time now = monotonic_now();
        const Progress progress = handle_arrivals();
        // While frames are unread, the lines must not advance past those that were read.
        if (progress != Progress::some) serve(now);
        send();
        flush_captures(now);
        if (progress == Progress::nothing && !busy_poll_)
            wait();
        else if (now >= look_at_)
            look(Time{});
    }
    for (auto& file : captures_) {
        if (file != nullptr) file->flush();
    }
}

Loop::Running::Running(Loop& loop) : loop_(loop) {
    const std::lock_guard lock(loop_.mutex_);
    loop_.running_ = true;
}

// The loop handles requests that arrived just before it stopped.
Loop::Running::~Running() {
    const std::lock_guard lock(loop_.mutex_);
    loop_.statistics_ = loop_.statistics();
    loop_.running_ = false;
    loop_.done_.notify_all();
}

void Loop::stop() {
    stopped_.store(true, std::memory_order_relaxed);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

void Loop::close() {
    const std::lock_guard one(callers_);
    const std::lock_guard lock(mutex_);
    if (running_) throw std::logic_error("the switch still runs; accepted: close after stop");
    stopped_ = true;
    for (const auto& port : ports_) port->close();
    for (auto& file : captures_) file.reset();
}

LoopStatistics Loop::statistics() const {
    LoopStatistics out = statistics_;
    if (running_) out.busy = read_clock(CLOCK_THREAD_CPUTIME_ID);
    return out;
}

// ---- frames ----

// Handles frames in the order of arrival over all ports, so that frames that meet in a queue keep that order. A port
// that may have more frames is read again before later frames of another port are handled.
Loop::Progress Loop::handle_arrivals() {
    if (capturing_) wall_offset_ = wall_offset();
    for (std::size_t p = 0; p < ports_.size(); ++p) {
        if (batches_[p].next == batches_[p].frames.size()) refill(p);
    }
    for (std::size_t handled = 0;; ++handled) {
        std::size_t first = ports_.size();
        Time at = no_time;
        for (std::size_t p = 0; p < ports_.size(); ++p) {
            const Batch& batch = batches_[p];
            if (batch.next < batch.frames.size() && batch.frames[batch.next].at < at) {
                first = p;
                at = batch.frames[batch.next].at;
            }
        }
        if (first == ports_.size()) return handled == 0 ? Progress::nothing : Progress::all;
        if (handled == round_frames) return Progress::some;
        Batch& batch = batches_[first];
        const Arrival& arrival = batch.frames[batch.next++];
        serve(at);
        if (captures_[first] != nullptr) captures_[first]->write(arrival.bytes, at + wall_offset_);
        core_.handle_frame(static_cast<std::uint32_t>(first), arrival.bytes, at);
        if (batch.next == batch.frames.size()) {
            const bool may_have_more = batch.frames.size() == batch_frames;
            if (may_have_more)
                refill(first);
            else
                ports_[first]->release();
        }
    }
}

void Loop::refill(std::size_t port) {
    ports_[port]->release();
    batches_[port] = {ports_[port]->receive(monotonic_now()), 0};
}

// Serves lines up to `now`, repeatedly while departures fill their space.
void Loop::serve(Time now) {
    core_.advance(now);
    while (core_.wants_sending()) {
        const bool any = send();
        core_.advance(now);
        if (!any) return;
    }
}

// Sends departures as far as the interfaces accept them; whether any were sent.
bool Loop::send() {
    bool any = false;
    blocked_ = 0;
    for (std::uint64_t ports = core_.departing(); ports != 0; ports &= ports - 1) {
        const auto p = static_cast<std::uint32_t>(std::countr_zero(ports));
        const std::span<const Departure> frames = core_.departures(p);
        const std::size_t sent = ports_[p]->send(frames);
        if (captures_[p] != nullptr) {
            for (const Departure& frame : frames.first(sent))
                captures_[p]->write({frame.data, frame.bytes}, frame.at + wall_offset_);
        }
        if (sent < frames.size()) blocked_ |= std::uint64_t{1} << p;
        core_.departed(p, sent);
        any = any || sent > 0;
    }
    return any;
}

// Sleeps until a frame, a request, or the next line's turn.
void Loop::wait() {
    const Time now = monotonic_now();
    Time until = std::min(core_.next_time(), flush_at_);
    if (until != no_time) until = std::max(until, now + tick);
    ++statistics_.waits;
    look(until == no_time ? no_time : until - now);
}

// Handles events of interfaces and requests of callers; waits at most this long for them.
void Loop::look(Time timeout) {
    look_at_ = monotonic_now() + look_every;
    const timespec rest{timeout / 1s, (timeout % 1s).count()};
    for (std::size_t p = 0; p < ports_.size(); ++p) {
        const bool blocked = (blocked_ >> p & 1) != 0;
        polled_[p].events = static_cast<short>(POLLIN | (blocked ? POLLOUT : 0));
    }
    if (ppoll(polled_.data(), polled_.size(), timeout == no_time ? nullptr : &rest, nullptr) <= 0) return;
    for (std::size_t p = 0; p < ports_.size(); ++p) {
        if ((polled_[p].revents & (POLLERR | POLLHUP | POLLNVAL)) == 0) continue;
        // A socket reports once that its interface went down or disappeared. A TAP that is gone would report it
        // forever, so it is no longer polled.
        int error = 0;
        socklen_t bytes = sizeof error;
        if (getsockopt(polled_[p].fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) polled_[p].fd = -1;
    }
    if (polled_[ports_.size()].revents != 0) check_links();
    if (polled_.back().revents != 0) {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t bytes = read(wake_.get(), &count, sizeof count);
    }
}

// ---- work of others ----

void Loop::call(const std::function<void()>& work) {
    const std::lock_guard one(callers_);
    std::unique_lock lock(mutex_);
    if (!running_) return work();
    work_ = &work;
    failure_ = nullptr;
    has_work_.store(true, std::memory_order_release);
    const std::uint64_t count = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &count, sizeof count);
    done_.wait(lock, [this] { return work_ == nullptr || !running_; });
    if (work_ != nullptr) {  // the loop ended before it came to it
        work_ = nullptr;
        has_work_ = false;
        return work();
    }
    if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void Loop::work_off() {
    const std::lock_guard lock(mutex_);
    has_work_.store(false, std::memory_order_relaxed);
    if (work_ == nullptr) return;
    try {
        (*work_)();
    } catch (...) {
        failure_ = std::current_exception();
    }
    work_ = nullptr;
    done_.notify_all();
}

void Loop::capture(std::size_t port, const std::string& path) {
    captures_[port] = path.empty() ? nullptr : std::make_unique<Capture>(path);
    capturing_ = std::any_of(captures_.begin(), captures_.end(), [](const auto& file) { return file != nullptr; });
    flush_at_ = capturing_ ? monotonic_now() + capture_flush : no_time;
    wall_offset_ = wall_offset();
}

void Loop::sample_every(Time interval) {
    core_.advance(monotonic_now());
    core_.sample_every(interval);
}

void Loop::flush_captures(Time now) {
    if (now < flush_at_) return;
    for (const auto& file : captures_) {
        if (file != nullptr) file->flush();
    }
    flush_at_ = now + capture_flush;
}

// ---- links ----

void Loop::watch_links() {
    links_ = Descriptor(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (links_.get() < 0 || bind(links_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        throw std::system_error(errno, std::generic_category(), "watching interfaces by netlink");
}

// The message does not say which interface changed: checking all of them is simple, and changes are rare.
void Loop::check_links() {
    char buffer[8192];
    while (read(links_.get(), buffer, sizeof buffer) > 0) continue;
    for (std::uint32_t p = 0; p < ports_.size(); ++p) core_.set_link(p, !held_down_[p] && ports_[p]->link());
}

void Loop::set_link(std::size_t port, bool up) {
    held_down_[port] = !up;
    check_links();
}

}  // namespace dlcp::softswitch

// The loop of wait(): look, yield, sleep, or arm interrupts.
#include "io/dpdk/waiting.hpp"

#include <rte_pause.h>
#include <sched.h>

#include <algorithm>

#include "io/clock.hpp"

namespace dlcp::dpdk {

int Waiter::open(PollMode mode, std::span<Uplink> uplinks, ErrorText error) {
    mode_ = mode;
    uplinks_ = uplinks;
    if (const int result = poller_.open(error); result < 0) return result;
    if (!sleeps()) return 0;
    std::vector<int> interrupts;
    for (const Uplink& uplink : uplinks_) {
        for (std::uint16_t queue = 0; queue < uplink.port->abilities().queues; ++queue) {
            const int descriptor = uplink.port->interrupt_descriptor(queue);
            if (descriptor < 0) return 0;  // one that has none: all are looked at
            interrupts.push_back(descriptor);
        }
    }
    // Which one it was does not matter: all queues are looked at then.
    for (const int descriptor : interrupts)
        if (const int result = poller_.add(descriptor, 0, error); result < 0) return result;
    has_interrupts_ = true;
    return 0;
}

void Waiter::wait(std::int64_t timeout_ns, Work& work) {
    const std::int64_t start_ns = monotonic_ns();
    const std::int64_t end_ns =
        timeout_ns < 0 || timeout_ns > INT64_MAX - start_ns ? INT64_MAX : start_ns + timeout_ns;
    std::int64_t now_ns = start_ns;
    for (;;) {
        // Watched descriptors must not starve while packets end every wait.
        if (!watched_.empty() && ++looks_ >= looks_per_epoll) {
            sleep(0);
            if (any_readable()) return;
        }
        if (work.poll(now_ns) || woken() || now_ns >= end_ns) return;
        const std::int64_t waited_ns = now_ns - active_ns_;
        const bool spin = mode_ == PollMode::spin;
        const bool yield = mode_ == PollMode::yield || (mode_ == PollMode::automatic && waited_ns < yield_ns);
        if (spin || yield) {
            if (spin)
                rte_pause();
            else
                sched_yield();
        } else {
            const std::int64_t left_ns = std::max<std::int64_t>(std::min(end_ns, work.deadline_ns()) - now_ns, 0);
            if (has_interrupts_) {
                arm(true);
                // What came before the interrupt was armed raises none.
                const bool found = work.poll(now_ns);
                if (!found) sleep(left_ns);
                arm(false);
                if (found) return;
            } else {
                const std::int64_t step_ns = std::clamp(waited_ns / 8, sleep_ns_min,
                                                        waited_ns < idle_ns ? sleep_ns_max : idle_sleep_ns_max);
                if (left_ns > 0) sleep(std::min(step_ns, left_ns));
            }
        }
        if (any_readable()) return;
        now_ns = monotonic_ns();
    }
}

// A wake() whose flag was taken while this did not sleep makes the next sleep end at once: looked for once more, no harm.
void Waiter::sleep(std::int64_t timeout_ns) {
    looks_ = 0;
    poller_.wait(timeout_ns);
}

void Waiter::arm(bool on) const {
    for (const Uplink& uplink : uplinks_) {
        for (std::uint16_t queue = 0; queue < uplink.port->abilities().queues; ++queue) {
            if (on)
                uplink.port->arm(queue);
            else
                uplink.port->disarm(queue);
        }
    }
}

void Waiter::wake() {
    woken_.store(true);
    poller_.wake();
}

int Waiter::watch(int descriptor, std::uint8_t* readable) {
    watched_.reserve(watched_.size() + 1);
    const int result = poller_.watch(descriptor, readable);
    if (result == 0) watched_.push_back({descriptor, readable});
    return result;
}

void Waiter::unwatch(int descriptor) {
    poller_.unwatch(descriptor);
    std::erase_if(watched_, [&](const Watched& watched) { return watched.descriptor == descriptor; });
}

bool Waiter::any_readable() const {
    return std::any_of(watched_.begin(), watched_.end(),
                       [](const Watched& watched) { return *watched.readable != 0; });
}

}  // namespace dlcp::dpdk

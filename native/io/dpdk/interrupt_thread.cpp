// A lock between DPDK's interrupt thread and the threads that poll memif ports.
#include "io/dpdk/interrupt_thread.hpp"

#include <rte_alarm.h>
#include <rte_interrupts.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>

namespace dlcp::dpdk {
namespace {

// A handler takes microseconds; longer than this the thread is not waited for, whatever it does.
constexpr std::chrono::seconds patience{1};
// For work on that thread: stopping or starting a port, and what it serves before.
constexpr std::chrono::seconds order_patience{5};

struct Gate {
    std::recursive_mutex bursts;
    std::atomic<int> stopping{0};  // threads that stop a port, or wait to
    std::mutex mutex;
    std::condition_variable changed;
    unsigned holders = 0;
    bool armed = false;  // the thread is in hold(), or will be
    bool held = false;   // it is
    bool pass = false;   // it may go on, once
};

// Never destroyed: the thread may be in it when the process ends.
Gate& gate() {
    static Gate* const instance = new Gate;
    return *instance;
}

// On the interrupt thread: alarms are served there (rte_alarm.h).
void hold(void*) {
    Gate& g = gate();
    std::unique_lock lock(g.mutex);
    g.held = true;
    g.changed.notify_all();
    g.changed.wait(lock, [&] { return g.pass || g.holders == 0; });
    g.pass = g.held = false;
    // Not sooner: an alarm that is due when this returns would be served before anything else.
    g.armed = g.holders > 0 && rte_eal_alarm_set(pass_us, hold, nullptr) == 0;
    g.changed.notify_all();
}

enum class OrderState : std::uint8_t { waiting, taken, done, withdrawn };

struct Order {
    int (*work)(std::uint16_t);
    std::uint16_t port;
    int answer = 0;
    std::atomic<OrderState> state{OrderState::waiting};

    bool change(OrderState from, OrderState to) { return state.compare_exchange_strong(from, to); }
};

// Holds on to the order itself: the thread that gave it may have given up.
void carry_out(void* given) {
    const std::unique_ptr<std::shared_ptr<Order>> kept(static_cast<std::shared_ptr<Order>*>(given));
    Order& order = **kept;
    if (!order.change(OrderState::waiting, OrderState::taken)) return;
    order.answer = order.work(order.port);
    order.state = OrderState::done;
}

}  // namespace

std::unique_lock<std::recursive_mutex> lock_memif() {
    // Bounded, since the caller may have it already.
    for (int i = 0; i < 20 && gate().stopping.load(std::memory_order_relaxed) > 0; ++i) usleep(50);
    return std::unique_lock(gate().bursts);
}

int on_interrupt_thread(int (*work)(std::uint16_t), std::uint16_t port) {
    if (rte_thread_is_intr() != 0) return work(port);
    gate().stopping.fetch_add(1);
    const std::lock_guard alone(gate().bursts);
    gate().stopping.fetch_sub(1);
    const auto order = std::make_shared<Order>();
    order->work = work;
    order->port = port;
    auto kept = std::make_unique<std::shared_ptr<Order>>(order);
    if (rte_eal_alarm_set(1, carry_out, kept.get()) != 0) return work(port);
    (void)kept.release();
    const auto limit = std::chrono::steady_clock::now() + order_patience;
    while (order->state != OrderState::done) {
        let_interrupts_pass();
        usleep(pass_us);
        if (std::chrono::steady_clock::now() < limit) continue;
        // The thread is busy elsewhere: this one does it. Or it hangs in this very work: nobody waits for it.
        if (order->change(OrderState::waiting, OrderState::withdrawn)) return work(port);
        if (order->state == OrderState::taken) return -ETIMEDOUT;
    }
    return order->answer;
}

InterruptHold::InterruptHold() {
    Gate& g = gate();
    std::unique_lock lock(g.mutex);
    ++g.holders;
    if (!g.armed) g.armed = rte_eal_alarm_set(1, hold, nullptr) == 0;
    g.changed.wait_for(lock, patience, [&] { return g.held || !g.armed; });
}

InterruptHold::~InterruptHold() {
    Gate& g = gate();
    const std::lock_guard lock(g.mutex);
    --g.holders;
    g.changed.notify_all();
}

void let_interrupts_pass() {
    Gate& g = gate();
    std::unique_lock lock(g.mutex);
    if (!g.armed || !g.changed.wait_for(lock, patience, [&] { return g.held || !g.armed; }) || !g.held) return;
    g.pass = true;
    g.changed.notify_all();
    g.changed.wait_for(lock, patience, [&] { return (g.held && !g.pass) || !g.armed; });
}

}  // namespace dlcp::dpdk

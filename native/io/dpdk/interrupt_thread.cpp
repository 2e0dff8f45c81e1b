#include "io/dpdk/interrupt_thread.hpp"

#include <rte_alarm.h>
#include <rte_interrupts.h>
#include <sched.h>

#include <future>
#include <memory>

namespace dlcp::dpdk {
namespace {

struct Order {
    Order(int (*what)(std::uint16_t), std::uint16_t of) : work(what), port(of) {}

    int (*work)(std::uint16_t);
    std::uint16_t port;
    std::promise<int> answer;
};

// Alarms are served by the interrupt thread (rte_alarm.h).
void carry_out(void* given) {
    const std::unique_ptr<Order> order(static_cast<Order*>(given));
    order->answer.set_value(order->work(order->port));
}

}  // namespace

int on_interrupt_thread(int (*work)(std::uint16_t), std::uint16_t port) {
    if (rte_thread_is_intr() != 0) return work(port);
    auto order = std::make_unique<Order>(work, port);
    std::future<int> answer = order->answer.get_future();
    if (rte_eal_alarm_set(1, carry_out, order.get()) != 0) return work(port);
    (void)order.release();  // carry_out's
    return answer.get();
}

void keep_interrupt_thread_from_preempting() {
    on_interrupt_thread(
        [](std::uint16_t) {
            const sched_param parameters = {.sched_priority = 0};
            return sched_setscheduler(0, SCHED_BATCH, &parameters);
        },
        0);
}

}  // namespace dlcp::dpdk

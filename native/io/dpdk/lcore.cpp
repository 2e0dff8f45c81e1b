// Lends lcore numbers to drivers and runs DPDK's timers for them.
#include "io/dpdk/lcore.hpp"

#include <rte_lcore.h>
#include <rte_mempool.h>
#ifdef RTE_LIB_TIMER
#include <rte_timer.h>
#endif

namespace dlcp::dpdk {
namespace {

// rte_lcore.h declares the variable for its inline functions; DPDK sets it when a thread registers.
unsigned& current() { return RTE_PER_LCORE(_lcore_id); }

void flush_cache(rte_mempool* pool, void* id) {
    rte_mempool_cache* const cache = rte_mempool_default_cache(pool, *static_cast<const unsigned*>(id));
    if (cache != nullptr) rte_mempool_cache_flush(cache, pool);
}

}  // namespace

Lcore::~Lcore() {
    if (id_ == none) return;
    const Use use(*this);
    // Of all pools, since buffers of another driver's may have ended up here (net_ring hands them over as they are).
    rte_mempool_walk(flush_cache, &id_);
    rte_thread_unregister();
}

void Lcore::take() {
    static_assert(none == LCORE_ID_ANY);
    const Use use(*this);  // a thread that has a number is given no other
    if (rte_thread_register() == 0) id_ = current();
}

void Lcore::prepare_timers() {
#ifdef RTE_LIB_TIMER
    rte_timer_subsystem_init();  // without the memory for it devices do without
#endif
}

void Lcore::run_timers() const {
#ifdef RTE_LIB_TIMER
    if (id_ != none) rte_timer_manage();
#endif
}

Lcore::Use::Use(const Lcore& lcore) : before_(current()) { current() = lcore.id_; }

Lcore::Use::~Use() { current() = before_; }

}  // namespace dlcp::dpdk

// adopt_thread(): a number among DPDK's lcores for a thread of ours, given back when the thread ends.
#include <rte_lcore.h>

#include "io/dpdk/eal.hpp"

namespace dlcp::dpdk {
namespace {

// Registering fails where a secondary process is attached, or when all RTE_MAX_LCORE numbers are taken; the thread then
// works without a cache. A thread that DPDK made, or that someone registered, is left as it is.
struct Adoption {
    bool ours = false;
    Adoption() {
        if (rte_lcore_id() == LCORE_ID_ANY) ours = rte_thread_register() == 0;
    }
    ~Adoption() {
        if (ours) rte_thread_unregister();
    }
};

}  // namespace

void adopt_thread() {
    if (!eal_started()) return;
    thread_local const Adoption adoption;
    (void)adoption;
}

}  // namespace dlcp::dpdk

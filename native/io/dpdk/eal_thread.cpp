// adopt_thread(): a number among DPDK's lcores for a thread of ours, given back when the thread ends.
#include <rte_lcore.h>

#include "io/dpdk/eal.hpp"

namespace dlcp::dpdk {
namespace {

// Registering fails where a secondary process is attached, or when all RTE_MAX_LCORE numbers are taken; the thread then
// works without a cache. A thread that DPDK made, or that someone registered, is left as it is.
struct Adoption {
    bool tried = false;
    bool ours = false;
    ~Adoption() {
        if (ours) rte_thread_unregister();
    }
};

}  // namespace

// Measured with a pool of 2 KB buffers (22.11, one thread): alone 16..25 ns per buffer in bulks of 32 and 30..43 ns
// singly, adopted 9..13 ns and 6..8 ns.
void adopt_thread() {
    thread_local Adoption adoption;
    if (adoption.tried || !eal_started()) return;
    adoption.tried = true;
    if (rte_lcore_id() == LCORE_ID_ANY) adoption.ours = rte_thread_register() == 0;
}

}  // namespace dlcp::dpdk

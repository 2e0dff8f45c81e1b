// Makes pools of packet buffers and keeps them for the next who opens the port.
#include "io/dpdk/port_pools.hpp"

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <vector>

#include "io/dpdk/eal.hpp"

namespace dlcp::dpdk {
namespace {

// Half the largest cache, which is also what one burst takes or gives at most.
constexpr unsigned cache_buffers = 256;

struct Pool {
    std::uint16_t port;
    PoolUse use;
    PoolSize size;
    rte_mempool* mempool;
    bool left = false;
};

struct Pools {
    std::mutex mutex;
    std::vector<Pool> all;
    unsigned made = 0;
};

Pools& pools() {
    static Pools* const instance = new Pools;
    return *instance;
}

rte_mempool* make(Pools& p, std::uint16_t port, PoolUse use, const PoolSize& size, int numa_node) {
    char name[RTE_MEMPOOL_NAMESIZE];
    std::snprintf(name, sizeof name, "dlcp%u_%s_%u", unsigned{port}, use == PoolUse::receive ? "rx" : "tx",
                  p.made);
    rte_mempool* mempool = rte_pktmbuf_pool_create(name, size.buffers, cache_buffers, 0,
                                                   static_cast<std::uint16_t>(size.data_room_bytes), numa_node);
    if (mempool != nullptr) ++p.made;
    return mempool;
}

}  // namespace

int take_pool(std::uint16_t port, PoolUse use, const PoolSize& size, rte_mempool*& out, ErrorText error) {
    Pools& p = pools();
    const std::lock_guard lock(p.mutex);
    for (Pool& pool : p.all) {
        if (pool.left || pool.port != port || pool.use != use) continue;
        if (pool.size.buffers >= size.buffers && pool.size.data_room_bytes == size.data_room_bytes) {
            out = pool.mempool;
            return 0;
        }
        pool.left = true;
    }
    out = make(p, port, use, size, size.numa_node);
    // The card's own node may have no memory for DPDK: another's is slower, but works.
    if (out == nullptr && size.numa_node != SOCKET_ID_ANY) out = make(p, port, use, size, SOCKET_ID_ANY);
    if (out == nullptr) {
        const std::uint64_t bytes =
            std::uint64_t{size.buffers} * (size.data_room_bytes + sizeof(rte_mbuf) + RTE_CACHE_LINE_SIZE);
        const unsigned long long megabytes = bytes / 1'048'576 + 1;
        return error.fail(
            ENOMEM,
            "port %u: no room for %u packet buffers of %u bytes, %llu MB in all (%s): give DPDK more "
            "memory (hugepages, or -m with --no-huge; EAL arguments now: %s)",
            unsigned{port}, size.buffers, size.data_room_bytes, megabytes, rte_strerror(rte_errno),
            eal_arguments().c_str());
    }
    p.all.push_back({port, use, size, out});
    return 0;
}

void free_left_pools(std::uint16_t port) {
    Pools& p = pools();
    const std::lock_guard lock(p.mutex);
    std::erase_if(p.all, [port](const Pool& pool) {
        if (pool.port != port || !pool.left || rte_mempool_in_use_count(pool.mempool) != 0) return false;
        rte_mempool_free(pool.mempool);
        return true;
    });
}

}  // namespace dlcp::dpdk

// Packet buffers of a port. Pools outlive a Port: a device that is stopped still holds buffers until its queues are set
// up anew. So a pool is kept for the next who opens the port, and given back once nothing of it is lent.
#pragma once

#include <cstdint>

#include "io/error_text.hpp"

struct rte_mempool;

namespace dlcp::dpdk {

struct PoolSize {
    std::uint32_t buffers = 0;
    std::uint32_t data_room_bytes = 0;  // of a buffer, headroom included
    int numa_node = -1;
};

enum class PoolUse : std::uint8_t { receive, transmit };

// A pool of at least this size; 0 or -ENOMEM with a sentence that says how much memory is missing.
int take_pool(std::uint16_t port, PoolUse use, const PoolSize& size, rte_mempool*& out, ErrorText error);
// Frees those that a port has left behind for larger ones, if nothing of them is lent. After its queues were set up.
void free_left_pools(std::uint16_t port);

}  // namespace dlcp::dpdk

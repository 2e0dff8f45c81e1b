// Payload linked to a frame instead of copied into it: a segment whose bytes lie in somebody else's memory (DPDK's
// "external buffer").
//
// Only for devices that have read a packet when tx_burst returns, since the memory is the engine's no longer than that.
// Segments are buffers without room of their own. One reference count serves all: it tells whether a device kept one.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <memory>

namespace dlcp::dpdk {

class ExternalBuffers {
public:
    ExternalBuffers() = default;
    ~ExternalBuffers();
    ExternalBuffers(const ExternalBuffers&) = delete;
    ExternalBuffers& operator=(const ExternalBuffers&) = delete;

    // False: no memory; payload is copied then.
    bool open(std::uint32_t segments, int numa_node);
    // Appends a segment to `frame` (whose pkt_len grows); `last` is its last segment so far, and then the new one.
    // False: there is no buffer for it.
    bool append(rte_mbuf* frame, rte_mbuf*& last, const std::uint8_t* data, std::uint32_t bytes);
    // Segments that no device has let go of.
    unsigned in_use() const { return rte_mbuf_ext_refcnt_read(shared_.get()) - 1u; }

private:
    rte_mempool* pool_ = nullptr;
    std::unique_ptr<rte_mbuf_ext_shared_info> shared_ = std::make_unique<rte_mbuf_ext_shared_info>();
};

}  // namespace dlcp::dpdk

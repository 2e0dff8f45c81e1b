// The shared info that a linked segment needs, and when it is free again.
#include "io/dpdk/external_buffer.hpp"

#include <rte_mempool.h>

#include <atomic>
#include <string>

namespace dlcp::dpdk {

namespace {

// The memory is somebody else's: nothing to free. Not called while this object lives, which holds one reference.
void nothing_to_free(void*, void*) {}

}  // namespace

bool ExternalBuffers::open(std::uint32_t segments, int numa_node) {
    static std::atomic<unsigned> pools{0};
    const std::string name = "dlcp_segments_" + std::to_string(pools.fetch_add(1));
    pool_ = rte_pktmbuf_pool_create(name.c_str(), segments, 0, 0, 0, numa_node);
    shared_->free_cb = nothing_to_free;
    rte_mbuf_ext_refcnt_set(shared_.get(), 1);
    return pool_ != nullptr;
}

// A device that kept a segment frees it later, to this pool.
ExternalBuffers::~ExternalBuffers() {
    if (pool_ == nullptr) return;
    if (in_use() == 0)
        rte_mempool_free(pool_);
    else
        (void)shared_.release();
}

bool ExternalBuffers::append(rte_mbuf* frame, rte_mbuf*& last, const std::uint8_t* data, std::uint32_t bytes) {
    rte_mbuf* const segment = rte_pktmbuf_alloc(pool_);
    if (segment == nullptr) return false;
    rte_mbuf_ext_refcnt_update(shared_.get(), 1);
    // Virtual devices read by address; there is no bus address to give.
    rte_pktmbuf_attach_extbuf(segment, const_cast<std::uint8_t*>(data), RTE_BAD_IOVA,
                              static_cast<std::uint16_t>(bytes), shared_.get());
    segment->data_off = 0;
    segment->data_len = static_cast<std::uint16_t>(bytes);
    last->next = segment;
    last = segment;
    ++frame->nb_segs;
    frame->pkt_len += bytes;
    return true;
}

}  // namespace dlcp::dpdk

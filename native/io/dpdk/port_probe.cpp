// Whether a virtual device has read a packet when tx_burst returns, so that a tensor can be linked to it.
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>

#include "io/dpdk/port.hpp"

namespace dlcp::dpdk {
namespace {

// Drivers that read a foreign buffer before their burst returns, by their source (22.11): they copy it, write it to a
// descriptor of the kernel, or do not look at it. The probe below then confirms it for this device, since some have a
// mode that does not (memif: zero-copy). Others are not tried: a peer in this process may free a packet of net_ring
// between the burst and our look, which proves nothing.
constexpr std::array<std::string_view, 6> candidates{"net_af_packet", "net_af_xdp", "net_memif",
                                                     "net_null",      "net_pcap",   "net_tap"};

void note_return(void*, void* returned) { *static_cast<bool*>(returned) = true; }

// What the second segment lies in. Static: a device that never gives it back may still look at it at exit.
struct Tail {
    alignas(64) std::array<std::uint8_t, 2048> bytes{};
    rte_mbuf_ext_shared_info shared{};
    bool returned = false;
};

}  // namespace

bool Port::probe_finishes_in_burst(std::span<const std::uint8_t> frame) {
    const bool is_candidate = std::find(candidates.begin(), candidates.end(), driver_) != candidates.end();
    if (!is_candidate || !abilities_.gathers || frame.size() < 2) {
        abilities_.finishes_in_burst = false;
        return true;
    }
    if (!up_ || !started()) return false;
    auto tail = std::make_unique<Tail>();
    const std::size_t head_bytes = std::min<std::size_t>(frame.size() / 2, 64);
    const std::size_t tail_bytes = std::min(frame.size() - head_bytes, tail->bytes.size());
    std::memcpy(tail->bytes.data(), frame.data() + head_bytes, tail_bytes);
    tail->shared.free_cb = note_return;
    tail->shared.fcb_opaque = &tail->returned;
    rte_mbuf_ext_refcnt_set(&tail->shared, 1);
    rte_mbuf* head = rte_pktmbuf_alloc(transmit_pool_);
    rte_mbuf* rest = rte_pktmbuf_alloc(transmit_pool_);
    if (head == nullptr || rest == nullptr) {
        rte_pktmbuf_free(head);
        rte_pktmbuf_free(rest);
        return false;
    }
    std::memcpy(rte_pktmbuf_append(head, static_cast<std::uint16_t>(head_bytes)), frame.data(), head_bytes);
    rte_pktmbuf_attach_extbuf(rest, tail->bytes.data(), RTE_BAD_IOVA, static_cast<std::uint16_t>(tail_bytes),
                              &tail->shared);
    rte_pktmbuf_append(rest, static_cast<std::uint16_t>(tail_bytes));
    if (rte_pktmbuf_chain(head, rest) != 0) {
        rte_pktmbuf_free(head);
        rte_pktmbuf_free(rest);
        return false;
    }
    if (rte_eth_tx_burst(id_, 0, &head, 1) != 1) {
        rte_pktmbuf_free(head);
        return false;
    }
    abilities_.finishes_in_burst = tail->returned;
    if (!tail->returned) (void)tail.release();  // the device has it, for as long as it likes
    return true;
}

}  // namespace dlcp::dpdk

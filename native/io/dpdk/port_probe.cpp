// Whether a virtual device has read a packet when tx_burst returns, so that a tensor can be linked to it.
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <iterator>
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

// The frame: the shortest there is, from the port to its own address, so that no switch passes it on, of a type that is
// nobody's (IEEE 802, local experimental EtherType 1).
constexpr std::uint16_t head_bytes = RTE_ETHER_HDR_LEN;
constexpr std::uint16_t tail_bytes = RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN - head_bytes;
constexpr std::uint16_t experimental_type = 0x88b5;

// What the second segment lies in: zeros. A device that never gives it back may still look at it at exit.
struct Tail {
    std::array<std::uint8_t, tail_bytes> bytes{};
    rte_mbuf_ext_shared_info shared{};
    bool returned = false;
};

}  // namespace

bool Port::probe_finishes_in_burst() {
    const bool is_candidate = std::find(candidates.begin(), candidates.end(), driver_) != candidates.end();
    if (!is_candidate || !abilities_.gathers) {
        abilities_.finishes_in_burst = false;
        return true;
    }
    if (!up_ || !started()) return false;
    auto tail = std::make_unique<Tail>();
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
    auto* const header = reinterpret_cast<rte_ether_hdr*>(rte_pktmbuf_append(head, head_bytes));
    std::copy(mac_.begin(), mac_.end(), std::begin(header->dst_addr.addr_bytes));
    std::copy(mac_.begin(), mac_.end(), std::begin(header->src_addr.addr_bytes));
    header->ether_type = rte_cpu_to_be_16(experimental_type);
    rte_pktmbuf_attach_extbuf(rest, tail->bytes.data(), RTE_BAD_IOVA, tail_bytes, &tail->shared);
    rte_pktmbuf_append(rest, tail_bytes);
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

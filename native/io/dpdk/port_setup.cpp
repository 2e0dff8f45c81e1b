// Decides queues, offloads, MTU and buffers of a port; refuses what its device cannot.
#include "io/dpdk/port_setup.hpp"

#include <linux/if_packet.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>

#include "ipstack/headers.hpp"

namespace dlcp::dpdk {
namespace {

// Ethernet header and one VLAN tag; cards count the check sequence too.
constexpr std::uint32_t frame_overhead_bytes = ipstack::ethernet_bytes + ipstack::vlan_bytes;
constexpr std::uint32_t ethernet_mtu = RTE_ETHER_MTU;

// KEY=NUMBER among a device's arguments.
std::uint32_t device_argument(const std::string& arguments, const std::string& key, std::uint32_t otherwise) {
    std::size_t at = 0;
    while (at < arguments.size()) {
        const std::size_t end = std::min(arguments.find(',', at), arguments.size());
        if (arguments.compare(at, key.size() + 1, key + "=") == 0) {
            std::uint32_t value = otherwise;
            std::from_chars(arguments.data() + at + key.size() + 1, arguments.data() + end, value);
            return value;
        }
        at = end + 1;
    }
    return otherwise;
}

// A slot of net_af_packet's ring; default: drivers/net/af_packet, DFLT_FRAME_SIZE.
std::uint32_t packet_slot_bytes(const PortIdentity& port) {
    return device_argument(port.arguments, "framesz", 1 << 11);
}

// The longest frame that fits in a slot. The kernel puts it behind its header, 16 bytes for the link's own header, and
// alignment (net/packet/af_packet.c, tpacket_rcv: macoff).
std::uint32_t packet_slot_frame_bytes(std::uint32_t slot_bytes) {
    const std::uint32_t frame_at = TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - ipstack::ethernet_bytes;
    return slot_bytes > frame_at ? slot_bytes - frame_at : 0;
}

std::uint32_t overhead_bytes(const rte_eth_dev_info& info) {
    // As rte_eth_dev_configure reckons it.
    if (info.max_mtu != UINT16_MAX && info.max_rx_pktlen > info.max_mtu) return info.max_rx_pktlen - info.max_mtu;
    return RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
}

bool says_it_carries(const rte_eth_dev_info& info, std::uint32_t mtu) {
    return mtu >= info.min_mtu && (info.max_mtu == 0 || mtu <= info.max_mtu) &&
           std::uint64_t{mtu} + overhead_bytes(info) <= info.max_rx_pktlen;
}

int plan_mtu(const PortIdentity& port, const rte_eth_dev_info& info, const PortConfig& config, PortSetup& out,
             ErrorText error) {
    const std::uint32_t interface_mtu = port.interface_mtu_bytes;
    std::uint32_t mtu = config.mtu_bytes;
    if (mtu == 0) mtu = interface_mtu != 0 ? interface_mtu : port.mtu_bytes != 0 ? port.mtu_bytes : ethernet_mtu;
    const auto warn = [&](const std::string& line) { out.warnings += "port " + port.name + ": " + line + "\n"; };
    if (port.driver == "net_af_packet") {
        // Says 1518 and carries what its slots hold.
        if (interface_mtu != 0 && mtu > interface_mtu) {
            warn("the interface " + port.interface_name + " has an MTU of " + std::to_string(interface_mtu) +
                 ", not " + std::to_string(mtu) + ": ip link set dev " + port.interface_name + " mtu " +
                 std::to_string(mtu));
            mtu = interface_mtu;
        }
        const std::uint32_t room = packet_slot_frame_bytes(packet_slot_bytes(port));
        if (mtu + frame_overhead_bytes > room) {
            std::uint32_t slot = 4096;
            while (packet_slot_frame_bytes(slot) < mtu + frame_overhead_bytes) slot *= 2;
            const std::uint32_t fits = room > frame_overhead_bytes ? room - frame_overhead_bytes : 0;
            const std::uint32_t headers =
                (config.address.is_v6() ? ipstack::ipv6_bytes : ipstack::ipv4_bytes) + ipstack::udp_bytes;
            if (fits < headers + datagram_bytes_min) {
                return error.fail(
                    EDOM,
                    "port %s: slots of %u bytes leave an MTU of %u, and %u are needed: set framesz=%u in "
                    "its --vdev, or leave it out",
                    port.name.c_str(), packet_slot_bytes(port), fits,
                    static_cast<unsigned>(headers + datagram_bytes_min), slot);
            }
            warn("an MTU of " + std::to_string(mtu) + " needs slots of " + std::to_string(slot) +
                 " bytes: add framesz=" + std::to_string(slot) +
                 ",blocksz=" + std::to_string(std::max(slot, std::uint32_t{1} << 16)) +
                 " to its --vdev; the MTU is " + std::to_string(fits) + " without");
            mtu = fits;
        }
        out.sets_mtu = config.mtu_bytes != 0 && says_it_carries(info, mtu);
    } else if (port.driver == "net_memif") {
        // Says 1518; longer frames go in several of its buffers.
        const std::uint32_t buffer = device_argument(port.arguments, "bsize", 2048);
        if (mtu + frame_overhead_bytes > buffer) {
            warn("a frame of an MTU of " + std::to_string(mtu) + " takes several of memif's buffers; bsize=" +
                 std::to_string((mtu + frame_overhead_bytes + 1023) / 1024 * 1024) +
                 " in its --vdev, on both sides, makes it one");
        }
    } else if (says_it_carries(info, mtu)) {
        out.sets_mtu = config.mtu_bytes != 0;
    } else {
        const std::uint32_t longest = info.max_rx_pktlen - std::min(overhead_bytes(info), info.max_rx_pktlen);
        const std::uint32_t fits =
            std::clamp<std::uint32_t>(mtu, info.min_mtu, std::min<std::uint32_t>(info.max_mtu, longest));
        warn("the device says that its MTU is " + std::to_string(info.min_mtu) + " to " +
             std::to_string(std::min<std::uint32_t>(info.max_mtu, longest)) + ", not " + std::to_string(mtu) +
             ": " + std::to_string(fits) + " is used");
        mtu = fits;
        out.sets_mtu = config.mtu_bytes != 0;
    }
    out.abilities.mtu_bytes = mtu;
    out.conf.rxmode.mtu = says_it_carries(info, mtu) ? mtu : 0;
    return 0;
}

// Whole frames in one buffer, so that no device needs to scatter them. Rounded up to a kilobyte, since some cards count
// in these and would take less of it (ixgbe: SRRCTL).
void plan_buffers(const PortIdentity& port, PortSetup& out) {
    std::uint32_t frame_bytes =
        out.abilities.mtu_bytes + frame_overhead_bytes + RTE_ETHER_CRC_LEN + ipstack::vlan_bytes;
    // net_af_packet wants room for a whole slot, however short the frames are.
    if (port.driver == "net_af_packet") frame_bytes = std::max(frame_bytes, packet_slot_bytes(port));
    frame_bytes = std::max<std::uint32_t>((frame_bytes + 1023) / 1024 * 1024, RTE_MBUF_DEFAULT_DATAROOM);
    out.data_room_bytes = std::min<std::uint32_t>(frame_bytes + RTE_PKTMBUF_HEADROOM, UINT16_MAX);
}

// What a card checks costs nothing and is never wrong to ask for; what it writes is decided here, for all of sending.
int plan_checksums(const PortIdentity& port, const rte_eth_dev_info& info, const PortConfig& config,
                   PortSetup& out, ErrorText error) {
    using ipstack::Checksums;
    out.abilities.checksums = config.checksum == ChecksumMode::none ? Checksums::none : Checksums::software;
    if (config.checksum != ChecksumMode::automatic && config.checksum != ChecksumMode::card) return 0;
    out.conf.rxmode.offloads |=
        (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM) & info.rx_offload_capa;
    // A virtual device "does" them in software, on packets that may lie in several pieces: we do that ourselves, at once
    // with the copy. An IPv6 header has no checksum of its own.
    const std::uint64_t needed = config.address.is_v6()
                                     ? RTE_ETH_TX_OFFLOAD_UDP_CKSUM
                                     : RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    if (!port.is_virtual && (info.tx_offload_capa & needed) == needed) {
        out.conf.txmode.offloads |= needed;
        out.abilities.checksums = Checksums::card;
        return 0;
    }
    if (config.checksum == ChecksumMode::automatic) return 0;
    return error.fail(EDOM, "checksum=card: port %s (%s) does not write %s; use checksum=auto", port.name.c_str(),
                      port.driver.c_str(), config.address.is_v6() ? "UDP checksums" : "both IP and UDP checksums");
}

void plan_queues(const PortIdentity& port, const rte_eth_dev_info& info, const PortConfig& config,
                 PortSetup& out) {
    const auto warn = [&](const std::string& line) { out.warnings += "port " + port.name + ": " + line + "\n"; };
    const std::uint16_t has = std::max<std::uint16_t>(1, std::min(info.max_rx_queues, info.max_tx_queues));
    out.abilities.queues = std::min(config.queues, has);
    if (out.abilities.queues < config.queues) {
        warn("it has " + std::to_string(has) + (has == 1 ? " queue" : " queues") + ", not " +
             std::to_string(config.queues));
    }
    if (out.abilities.queues == 1) return;
    // By IP addresses and UDP ports: a peer's paths differ in their source port alone.
    constexpr std::uint64_t ports =
        RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP | RTE_ETH_RSS_IPV6_UDP_EX;
    constexpr std::uint64_t addresses = RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_IPV6_EX;
    std::uint64_t fields = ports & info.flow_type_rss_offloads;
    if (fields == 0) {
        fields = addresses & info.flow_type_rss_offloads;
        warn(fields == 0
                 ? "it does not spread packets over its queues itself (no RSS): one may get all"
                 : "it spreads packets over its queues by IP address, not by UDP port: one queue per peer");
    }
    out.conf.rx_adv_conf.rss_conf.rss_hf = fields;
    out.conf.rxmode.mq_mode = fields != 0 ? RTE_ETH_MQ_RX_RSS : RTE_ETH_MQ_RX_NONE;
}

void plan_sending(const PortIdentity& port, const rte_eth_dev_info& info, const PortConfig& config,
                  PortSetup& out) {
    const bool copies =
        config.payload == PayloadMode::copy || (config.payload == PayloadMode::automatic && !port.is_virtual);
    // Not asked for where nothing is gathered: with it, some cards send more slowly (22.11, i40e_set_tx_function_flag).
    if (!copies && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0) {
        out.conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
        out.abilities.gathers = true;
        return;
    }
    // net_null and net_tap send whatever is linked without saying so: the first reads only lengths, the second writev's.
    out.abilities.gathers = !copies && (port.driver == "net_null" || port.driver == "net_tap");
    // All that a queue is given must be whole buffers of one pool, each held once (rte_ethdev.h).
    if (!out.abilities.gathers && config.one_pool)
        out.conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE & info.tx_offload_capa;
}

// A descriptor holds a packet, however short. Powers of two, since some cards take no other number (mlx5).
void plan_descriptors(const PortIdentity& port, const rte_eth_dev_info& info, const PortConfig& config,
                      PortSetup& out) {
    if (config.buffer_bytes == 0 || out.abilities.mtu_bytes == 0)
        return;  // 0: a device that says so is refused later
    constexpr std::uint32_t least = 64, most = 1 << 15;
    const std::uint32_t wanted = config.buffer_bytes / out.abilities.mtu_bytes;
    std::uint32_t has = std::min(most, ring_packets(port));
    for (const std::uint32_t limit : {info.rx_desc_lim.nb_max, info.tx_desc_lim.nb_max})
        if (limit != 0) has = std::min(has, limit);
    if (wanted > has) {
        out.warnings += "port " + port.name + ": its queues hold " + std::to_string(has) +
                        " packets, fewer than the " + std::to_string(wanted) + " of " +
                        std::to_string(out.abilities.mtu_bytes) + " bytes that socket_buffer_bytes asks for\n";
    }
    out.descriptors =
        static_cast<std::uint16_t>(std::min(std::max(std::bit_ceil(wanted), least), std::bit_floor(has)));
}

// A card that can filter by tag may do so by itself, and some virtual functions do: it is given ours.
void plan_vlan(const rte_eth_dev_info& info, const PortConfig& config, PortSetup& out) {
    if (config.vlan == 0 || (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER) == 0) return;
    out.conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
    out.vlan = config.vlan;
}

}  // namespace

// Defaults: drivers/net/memif (ETH_MEMIF_RING_SIZE), drivers/net/af_packet (DFLT_FRAME_COUNT).
std::uint32_t ring_packets(const PortIdentity& port) {
    if (port.driver == "net_memif")
        return std::uint32_t{1} << std::min(device_argument(port.arguments, "rsize", 10), 15u);
    if (port.driver == "net_af_packet") return device_argument(port.arguments, "framecnt", 1 << 9);
    return UINT16_MAX;
}

int plan_port(const PortIdentity& port, const rte_eth_dev_info& info, const PortConfig& config, PortSetup& out,
              ErrorText error) {
    out = PortSetup{};
    plan_queues(port, info, config, out);
    if (const int result = plan_mtu(port, info, config, out, error); result < 0) return result;
    plan_descriptors(port, info, config, out);
    plan_buffers(port, out);
    plan_sending(port, info, config, out);
    plan_vlan(info, config, out);
    const std::uint32_t flags = info.dev_flags != nullptr ? *info.dev_flags : 0;
    out.conf.intr_conf.lsc = (flags & RTE_ETH_DEV_INTR_LSC) != 0;
    out.conf.intr_conf.rmv = (flags & RTE_ETH_DEV_INTR_RMV) != 0;
    // None of the virtual devices has them, and some say so only after the start.
    out.conf.intr_conf.rxq = config.wants_interrupts && !port.is_virtual;
    return plan_checksums(port, info, config, out, error);
}

}  // namespace dlcp::dpdk

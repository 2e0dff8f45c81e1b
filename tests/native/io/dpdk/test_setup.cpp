// What the dpdk driver asks of a card, given what the card says that it can: cards that no test machine has, as their
// drivers describe them (DPDK 22.11).
#include <doctest/doctest.h>

#include <cerrno>
#include <string>

#include "io/dpdk/port_setup.hpp"
#include "ipstack/interface_options.hpp"

using namespace dlcp::dpdk;
using dlcp::ipstack::Checksums;

namespace {

constexpr std::uint64_t both_sums = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;

struct Card {
    PortIdentity identity{.name = "0000:3b:00.0", .driver = "net_ice", .mtu_bytes = 1500};
    rte_eth_dev_info info = [] {
        rte_eth_dev_info all{};
        all.min_mtu = 68;
        all.max_mtu = 9702;
        all.max_rx_pktlen = 9728;
        all.max_rx_queues = all.max_tx_queues = 64;
        all.rx_offload_capa = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM |
                              RTE_ETH_RX_OFFLOAD_VLAN_FILTER | RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
        all.tx_offload_capa = both_sums | RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
        all.flow_type_rss_offloads = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;
        return all;
    }();
};

PortConfig config_at(const std::string& address) {
    PortConfig config;
    unsigned prefix_bits = 0;
    CHECK(dlcp::ipstack::parse_own_address(address, "address", config.address, prefix_bits) == "");
    return config;
}

PortSetup planned(const Card& card, const PortConfig& config) {
    PortSetup setup;
    char text[512] = "";
    const int rc = plan_port(card.identity, card.info, config, setup, {text, sizeof text});
    INFO(text);
    CHECK(rc == 0);
    return setup;
}

std::string refusal(const Card& card, const PortConfig& config) {
    PortSetup setup;
    char text[512] = "";
    CHECK(plan_port(card.identity, card.info, config, setup, {text, sizeof text}) == -EDOM);
    return text;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("dpdk setup: a card copies, so it is asked for no segments, however many ports there are") {
    const Card card;
    for (const bool one_pool : {true, false}) {
        CAPTURE(one_pool);
        PortConfig config = config_at("10.0.0.1/24");
        config.one_pool = one_pool;
        for (const PayloadMode payload : {PayloadMode::automatic, PayloadMode::copy}) {
            config.payload = payload;
            const PortSetup setup = planned(card, config);
            CHECK(!setup.abilities.gathers);
            CHECK((setup.conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) == 0);
            // rte_ethdev.h: all buffers of a queue come from one pool.
            CHECK(((setup.conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE) != 0) == one_pool);
        }
        config.payload = PayloadMode::gather;
        const PortSetup setup = planned(card, config);
        CHECK(setup.abilities.gathers);
        CHECK((setup.conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0);
        CHECK((setup.conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE) == 0);
    }
}

TEST_CASE("dpdk setup: a card that filters by tag is told ours") {
    Card card;
    PortConfig config = config_at("10.0.0.1/24");
    CHECK(planned(card, config).vlan == 0);
    CHECK((planned(card, config).conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_FILTER) == 0);
    config.vlan = 12;
    CHECK(planned(card, config).vlan == 12);
    CHECK((planned(card, config).conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_FILTER) != 0);
    // The tag stays in the frame, where it is read.
    CHECK((planned(card, config).conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_STRIP) == 0);
    card.info.rx_offload_capa = 0;
    CHECK(planned(card, config).vlan == 0);
    CHECK(planned(card, config).conf.rxmode.offloads == 0);
}

TEST_CASE("dpdk setup: a card writes the checksums that the port's address needs, or none") {
    Card card;
    PortConfig v4 = config_at("10.0.0.1/24"), v6 = config_at("fd00::1/64");
    for (PortConfig* config : {&v4, &v6}) {
        CHECK(planned(card, *config).abilities.checksums == Checksums::card);
        config->checksum = ChecksumMode::software;
        CHECK(planned(card, *config).abilities.checksums == Checksums::software);
        CHECK((planned(card, *config).conf.txmode.offloads & both_sums) == 0);
        config->checksum = ChecksumMode::none;
        CHECK(planned(card, *config).abilities.checksums == Checksums::none);
        config->checksum = ChecksumMode::card;
        CHECK(planned(card, *config).abilities.checksums == Checksums::card);
    }
    // virtio and vmxnet3: UDP's alone, which is all that IPv6 has.
    card.info.tx_offload_capa = RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    CHECK(planned(card, v6).abilities.checksums == Checksums::card);
    CHECK(planned(card, v6).conf.txmode.offloads == RTE_ETH_TX_OFFLOAD_UDP_CKSUM);
    CHECK(contains(refusal(card, v4), "does not write both IP and UDP checksums; use checksum=auto"));
    v4.checksum = ChecksumMode::automatic;
    CHECK(planned(card, v4).abilities.checksums == Checksums::software);
    CHECK(planned(card, v4).conf.txmode.offloads == 0);
    card.info.tx_offload_capa = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
    CHECK(contains(refusal(card, v6), "does not write UDP checksums"));
    // A virtual device's are software of its own.
    card.info.tx_offload_capa = both_sums;
    card.identity.is_virtual = true;
    CHECK(planned(card, v4).abilities.checksums == Checksums::software);
    CHECK(contains(refusal(card, v6), "checksum=card"));
}

TEST_CASE("dpdk setup: an MTU that a card does not have is taken down to what it has") {
    const Card card;
    PortConfig config = config_at("10.0.0.1/24");
    CHECK(planned(card, config).abilities.mtu_bytes == 1500);
    config.mtu_bytes = 9000;
    CHECK(planned(card, config).abilities.mtu_bytes == 9000);
    CHECK(planned(card, config).conf.rxmode.mtu == 9000);
    CHECK(planned(card, config).warnings == "");
    config.mtu_bytes = 16000;
    CHECK(planned(card, config).abilities.mtu_bytes == 9702);
    CHECK(contains(planned(card, config).warnings, "its MTU is 68 to 9702, not 16000: 9702 is used"));
}

TEST_CASE(
    "dpdk setup: slots that hold no whole datagram are refused, and the sentence says which argument to change") {
    Card card;
    card.identity = {.name = "net_af_packet0", .driver = "net_af_packet", .is_virtual = true};
    card.info.max_mtu = 1500;
    card.info.max_rx_pktlen = 1518;
    for (const bool v6 : {false, true}) {
        CAPTURE(v6);
        PortConfig config = config_at(v6 ? "fd00::1/64" : "10.0.0.1/24");
        config.buffer_bytes = 1 << 20;
        for (const std::string slot : {"0", "16", "128", "640"}) {
            CAPTURE(slot);
            card.identity.arguments = "iface=eth0,framesz=" + slot;
            const std::string text = refusal(card, config);
            CHECK(contains(text, "slots of " + slot + " bytes"));
            CHECK(contains(text, "framesz=4096"));
        }
        card.identity.arguments = "iface=eth0,framesz=1024";
        CHECK(planned(card, config).abilities.mtu_bytes > 900);
        CHECK(contains(planned(card, config).warnings, "framesz=4096"));
    }
}

TEST_CASE("dpdk setup: queues are those there are, and spread by UDP port") {
    Card card;
    PortConfig config = config_at("10.0.0.1/24");
    config.queues = 4;
    CHECK(planned(card, config).abilities.queues == 4);
    CHECK(planned(card, config).conf.rx_adv_conf.rss_conf.rss_hf ==
          (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP));
    card.info.flow_type_rss_offloads = RTE_ETH_RSS_IPV4;
    CHECK(contains(planned(card, config).warnings, "by IP address, not by UDP port"));
    card.info.flow_type_rss_offloads = 0;
    CHECK(contains(planned(card, config).warnings, "no RSS"));
    card.info.max_tx_queues = 2;
    CHECK(planned(card, config).abilities.queues == 2);
    CHECK(contains(planned(card, config).warnings, "it has 2 queues, not 4"));
}

TEST_CASE("dpdk setup: queues hold what socket_buffer_bytes asks for, as far as the card can") {
    Card card;
    card.info.rx_desc_lim.nb_max = 4096;
    card.info.tx_desc_lim.nb_max = 8192;
    PortConfig config = config_at("10.0.0.1/24");
    const auto descriptors = [&](std::uint32_t bytes, bool enough = true) {
        config.buffer_bytes = bytes;
        const PortSetup setup = planned(card, config);
        CAPTURE(bytes);
        CHECK(contains(setup.warnings, "hold 4096 packets, fewer than the ") != enough);
        return setup.descriptors;
    };
    CHECK(descriptors(0) == 1024);
    CHECK(descriptors(4096) == 64);
    CHECK(descriptors(1500 * 512) == 512);
    CHECK(descriptors(1500 * 513) == 1024);
    CHECK(descriptors(1500 * 4096) == 4096);
    CHECK(descriptors(1500 * 4097, false) == 4096);
    CHECK(descriptors(UINT32_MAX, false) == 4096);
    card.info.rx_desc_lim.nb_max = card.info.tx_desc_lim.nb_max = 0;  // does not say
    CHECK(descriptors(1500 * 30000) == 32768);
    card.identity.driver = "net_memif";
    card.identity.arguments = "role=server,rsize=12";  // what its ring holds, whatever is asked
    CHECK(descriptors(1500 * 30000, false) == 4096);
}

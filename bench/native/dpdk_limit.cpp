// What DPDK alone can do with one port and one queue: the limit that the dpdk driver is held against.
//
// The sender does per burst what testpmd's `txonly` does (app/test-pmd/txonly.c). It takes buffers in bulk from a pool
// with a cache of 250 and sets their lengths. It copies Ethernet, IPv4 and UDP headers from templates whose IPv4
// checksum was computed once and whose UDP checksum is 0. It hands all to rte_eth_tx_burst and frees what was not
// taken. The payload is not written. With --payload body it is, as an application's must be: 64 bytes of header of its
// own are written and the rest is copied from `memory-bytes` of memory that is read in turn. With --checksum 1 the UDP
// checksum is computed over the whole datagram in software (rte_ipv4_udptcp_cksum).
//
// The receiver does what `rxonly` does (app/test-pmd/rxonly.c): rte_eth_rx_burst, then frees every packet. With --look 1
// it reads the headers and counts only UDP packets to its port, which is the least a protocol does.
//
// One line of JSON; see rate_loop.hpp.

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#include <cstring>
#include <sstream>

#include "arguments.hpp"
#include "json.hpp"
#include "rate_loop.hpp"

namespace {

using namespace dlcp::bench;

constexpr std::uint16_t burst_packets_max = 512;
constexpr std::uint32_t headers_bytes = sizeof(rte_ether_hdr) + sizeof(rte_ipv4_hdr) + sizeof(rte_udp_hdr);
constexpr std::uint32_t own_header_bytes = 64;  // what an engine writes before the payload
constexpr unsigned pool_packets = 8191, pool_cache = 250;

// As words of a shell without quotes.
void start_eal(const std::string& arguments) {
    static std::vector<std::string> words{"dpdk_limit"};
    std::istringstream stream(arguments);
    for (std::string word; stream >> word;) words.push_back(word);
    std::vector<char*> line;
    for (std::string& word : words) line.push_back(word.data());
    if (rte_eal_init(static_cast<int>(line.size()), line.data()) < 0)
        die("DPDK does not start: " + std::string(rte_strerror(rte_errno)));
    if (rte_eth_dev_count_avail() == 0) die("DPDK found no port");
}

class Port {
public:
    explicit Port(std::uint32_t frame_bytes) {
        const std::uint32_t room =
            std::max<std::uint32_t>(RTE_MBUF_DEFAULT_BUF_SIZE, frame_bytes + RTE_PKTMBUF_HEADROOM);
        pool_ = rte_pktmbuf_pool_create("limit", pool_packets, pool_cache, 0, static_cast<std::uint16_t>(room), 0);
        if (pool_ == nullptr) die("no memory for packets");
        const rte_eth_conf config{};
        std::uint16_t rx = 1024, tx = 1024;
        if (rte_eth_dev_configure(id_, 1, 1, &config) != 0) die("cannot configure the port");
        rte_eth_dev_adjust_nb_rx_tx_desc(id_, &rx, &tx);
        if (rte_eth_rx_queue_setup(id_, 0, rx, SOCKET_ID_ANY, nullptr, pool_) != 0 ||
            rte_eth_tx_queue_setup(id_, 0, tx, SOCKET_ID_ANY, nullptr) != 0 || rte_eth_dev_start(id_) != 0)
            die("cannot start the port");
        rte_eth_macaddr_get(id_, &mac_);
    }
    ~Port() { rte_eth_dev_stop(id_); }

    std::uint16_t id() const { return id_; }
    rte_mempool* pool() const { return pool_; }
    const rte_ether_addr& mac() const { return mac_; }
    bool up() const {
        rte_eth_link link{};
        return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
    }

private:
    std::uint16_t id_ = 0;
    rte_mempool* pool_ = nullptr;
    rte_ether_addr mac_{};
};

rte_ether_addr parse_mac(const std::string& text) {
    rte_ether_addr mac{};
    if (rte_ether_unformat_addr(text.c_str(), &mac) != 0) die(text + " is no Ethernet address");
    return mac;
}

rte_be32_t parse_ip(const std::string& text) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (std::sscanf(text.c_str(), "%u.%u.%u.%u", &a, &b, &c, &d) != 4) die(text + " is no IPv4 address");
    return rte_cpu_to_be_32(RTE_IPV4(a, b, c, d));
}

class Sender {
public:
    Sender(const Arguments& arguments, const Port& port)
        : port_(port),
          burst_(static_cast<std::uint16_t>(arguments.integer("burst"))),
          bytes_(static_cast<std::uint16_t>(arguments.integer("bytes"))),
          body_(arguments.text("payload") == "body"),
          checksum_(arguments.on("checksum")),
          memory_(static_cast<std::size_t>(arguments.integer("memory-bytes")), 1) {
        ethernet_.src_addr = port.mac();
        ethernet_.dst_addr = parse_mac(arguments.text("to-mac"));
        ethernet_.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
        ip_.version_ihl = RTE_IPV4_VHL_DEF;
        ip_.total_length = rte_cpu_to_be_16(static_cast<std::uint16_t>(bytes_ + sizeof ip_ + sizeof udp_));
        ip_.time_to_live = 64;
        ip_.next_proto_id = IPPROTO_UDP;
        ip_.src_addr = parse_ip(arguments.text("from"));
        ip_.dst_addr = parse_ip(arguments.text("to"));
        ip_.hdr_checksum = rte_ipv4_cksum(&ip_);
        udp_.src_port = rte_cpu_to_be_16(static_cast<std::uint16_t>(arguments.integer("port")));
        udp_.dst_port = udp_.src_port;
        udp_.dgram_len = rte_cpu_to_be_16(static_cast<std::uint16_t>(bytes_ + sizeof udp_));
        if (memory_.size() < bytes_) die("--memory-bytes is less than a packet");
    }

    std::pair<std::uint64_t, std::uint64_t> burst() {
        rte_mbuf* packets[burst_packets_max];
        if (rte_mempool_get_bulk(port_.pool(), reinterpret_cast<void**>(packets), burst_) != 0) return {burst_, 0};
        for (std::uint16_t i = 0; i < burst_; ++i) prepare(packets[i]);
        const std::uint16_t taken = rte_eth_tx_burst(port_.id(), 0, packets, burst_);
        for (std::uint16_t i = taken; i < burst_; ++i) rte_pktmbuf_free(packets[i]);
        return {burst_, taken};
    }

private:
    void prepare(rte_mbuf* packet) {
        rte_pktmbuf_reset_headroom(packet);
        packet->data_len = static_cast<std::uint16_t>(headers_bytes + bytes_);
        packet->pkt_len = packet->data_len;
        packet->nb_segs = 1;
        packet->next = nullptr;
        packet->ol_flags = 0;
        packet->vlan_tci = 0;
        packet->l2_len = sizeof ethernet_;
        packet->l3_len = sizeof ip_;
        auto* at = rte_pktmbuf_mtod(packet, std::uint8_t*);
        std::memcpy(at, &ethernet_, sizeof ethernet_);
        std::memcpy(at + sizeof ethernet_, &ip_, sizeof ip_);
        auto* udp = reinterpret_cast<rte_udp_hdr*>(at + sizeof ethernet_ + sizeof ip_);
        std::memcpy(udp, &udp_, sizeof udp_);
        if (body_) {
            std::memset(at + headers_bytes, static_cast<int>(next_), own_header_bytes);
            const std::size_t bytes = bytes_ - own_header_bytes;
            if (next_ + bytes > memory_.size()) next_ = 0;
            std::memcpy(at + headers_bytes + own_header_bytes, &memory_[next_], bytes);
            next_ += bytes;
        }
        if (checksum_) udp->dgram_cksum = rte_ipv4_udptcp_cksum(&ip_, udp);
    }

    const Port& port_;
    const std::uint16_t burst_, bytes_;
    const bool body_, checksum_;
    std::vector<std::uint8_t> memory_;
    std::size_t next_ = 0;
    rte_ether_hdr ethernet_{};
    rte_ipv4_hdr ip_{};
    rte_udp_hdr udp_{};
};

class Receiver {
public:
    Receiver(const Arguments& arguments, const Port& port)
        : port_(port),
          burst_(static_cast<std::uint16_t>(arguments.integer("burst"))),
          look_(arguments.on("look")),
          udp_port_(rte_cpu_to_be_16(static_cast<std::uint16_t>(arguments.integer("port")))) {}

    std::uint64_t burst() {
        rte_mbuf* packets[burst_packets_max];
        const std::uint16_t n = rte_eth_rx_burst(port_.id(), 0, packets, burst_);
        std::uint64_t wanted = n;
        if (look_) {
            wanted = 0;
            for (std::uint16_t i = 0; i < n; ++i) wanted += is_ours(packets[i]);
        }
        for (std::uint16_t i = 0; i < n; ++i) rte_pktmbuf_free(packets[i]);
        return wanted;
    }

private:
    bool is_ours(const rte_mbuf* packet) const {
        if (packet->data_len < headers_bytes) return false;
        const auto* ethernet = rte_pktmbuf_mtod(packet, const rte_ether_hdr*);
        const auto* ip = reinterpret_cast<const rte_ipv4_hdr*>(ethernet + 1);
        const auto* udp = reinterpret_cast<const rte_udp_hdr*>(ip + 1);
        return ethernet->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) && ip->next_proto_id == IPPROTO_UDP &&
               udp->dst_port == udp_port_;
    }

    const Port& port_;
    const std::uint16_t burst_;
    const bool look_;
    const rte_be16_t udp_port_;
};

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"eal", "--no-huge --no-pci -m 64 --vdev=net_null0,no-rx=1"},
                               {"payload", "none"},  // or body
                               {"memory-bytes", "1048576"},
                               {"checksum", "0"},
                               {"look", "0"},
                               {"from", "10.78.0.1"},
                               {"to", "10.78.0.2"},
                               {"to-mac", "02:00:00:00:78:02"},
                               {"port", "7000"},
                               DLCP_BENCH_RATE_ARGUMENTS});
    if (const auto burst = arguments.integer("burst"); burst < 1 || burst > burst_packets_max)
        die("--burst is 1 to 512");
    start_eal(arguments.text("eal"));
    RateLoop loop(arguments);
    Json answer;
    {
        Port port(static_cast<std::uint32_t>(arguments.integer("bytes")) + headers_bytes);
        Json ready;
        char mac[RTE_ETHER_ADDR_FMT_SIZE];
        rte_ether_format_addr(mac, sizeof mac, &port.mac());
        ready.add("mac", std::string(mac));
        // A shared memory link stands once both ends are there.
        if (arguments.text("role") == "send") {
            for (int i = 0; i < 500 && !port.up(); ++i) usleep(10'000);
            if (!port.up()) die("the link does not come up");
            Sender sender(arguments, port);
            answer = loop.send(ready, [&] { return sender.burst(); });
        } else {
            Receiver receiver(arguments, port);
            answer = loop.receive(
                ready, [&] { return receiver.burst(); }, [] {});
        }
        rte_eth_stats statistics{};
        rte_eth_stats_get(port.id(), &statistics);
        answer.add("missed_packets", statistics.imissed).add("no_buffer_packets", statistics.rx_nombuf);
    }
    answer.print();
    rte_eal_cleanup();
}

// One Ethernet port of DPDK: found by name, claimed by one driver of this process, configured, started, watched.
//
// A port belongs to one Port at a time; its link state and counters may be read by any thread, the rest is its owner's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/dpdk/link.hpp"
#include "io/dpdk/options.hpp"
#include "io/driver_events.hpp"
#include "io/io_table.h"

struct rte_mempool;

namespace dlcp::dpdk {

struct PortIdentity;
struct PortSetup;

struct PortConfig {
    std::string device;  // empty: the only one
    std::uint16_t queues = 1;
    std::uint32_t mtu_bytes = 0;     // 0: as it is
    std::uint32_t buffer_bytes = 0;  // a queue is to hold, either way (socket_buffer_bytes); 0: ours to choose
    ChecksumMode checksum = ChecksumMode::automatic;
    PayloadMode payload = PayloadMode::automatic;
    bool wants_interrupts = false;  // of receive queues, for who sleeps
    bool flow_isolation = false;
    std::uint16_t udp_port = 0;  // with flow_isolation: the only datagrams wanted, and
    std::uint16_t paths = 1;     // those to the source ports of so many paths, which a peer may answer to
    std::uint16_t vlan = 0;      // the tag of all frames; 0: none
    bool one_pool = true;        // what is sent lies in buffers of its own transmit pool alone
    ipstack::IpAddress address;
};

// What the device can do, as configured.
struct PortAbilities {
    ipstack::Checksums checksums = ipstack::Checksums::software;  // who writes those of what is sent
    bool gathers = false;                                         // sends packets of several segments
    bool finishes_in_burst = false;  // a virtual device: has read a packet when tx_burst returns; see the probe
    bool has_rx_interrupt = false;
    std::uint32_t mtu_bytes = 1500;
    std::uint16_t queues = 1;
    std::uint16_t rx_descriptors = 0, tx_descriptors = 0;  // per queue
};

class Port {
public:
    // Claims, configures and starts it. -ENODEV: no such port (names those there are); -EBUSY: another driver of this
    // process has it; others as the device says.
    static int open(const PortConfig& config, std::unique_ptr<Port>& out, ErrorText error);
    ~Port();  // stops it and lets go; a virtual device stays for the next
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    std::uint16_t id() const { return id_; }
    const std::string& name() const { return name_; }      // "0000:3b:00.0", "net_memif0"
    const std::string& driver() const { return driver_; }  // "mlx5_pci", "net_memif"
    const ipstack::MacAddress& mac() const { return mac_; }
    const PortAbilities& abilities() const { return abilities_; }
    // Buffers with room for a frame of the MTU behind rte_pktmbuf's headroom: of receive queues, and for sending.
    rte_mempool* receive_pool() const { return receive_pool_; }
    rte_mempool* transmit_pool() const { return transmit_pool_; }
    const std::string& warnings() const { return warnings_; }  // lines

    // Finds out whether the device has read a packet when tx_burst returns, by sending a frame to itself in two segments
    // of which the second is not DPDK's memory. Known: true, and abilities() says it. false: not yet (no link, no room):
    // ask again later. A card is not asked: it reads later.
    bool probe_finishes_in_burst();

    // Hears frames to these groups too; by all-multicast or promiscuous mode where filters do not do it.
    int listen_to(std::span<const ipstack::MacAddress> groups, ErrorText error);

    // Looks at the link, at most every link_check_ns; tells changes. `up()`: as last seen.
    void watch_link(std::int64_t now_ns, DriverEvents& events);
    bool up() const { return up_; }
    // Bursts, and what else touches the device, are for a port that is. Not so: a memif client until its server is there
    // (a burst would print a stack, once per process and direction), and a device that is gone or mends itself.
    bool started() const { return started_ && link_->state() == DeviceState::usable; }
    static constexpr std::int64_t link_check_ns = 50'000'000;
    // Whether frames are lost since there is no buffer to receive them in: one event, until none was for a while. Asks the
    // card's counters, which may take a tenth of a millisecond: at most every buffers_check_ns.
    void watch_buffers(std::int64_t now_ns, DriverEvents& events);
    static constexpr std::int64_t buffers_check_ns = 200'000'000;

    // Frames that the card dropped for want of room or buffers.
    std::uint64_t rx_dropped() const;
    // The card's counters by name, prefixed "portN_": basic ones, then extended ones (xstats).
    void append_statistics(std::vector<dlcp_io_statistic>& out) const;
    // A descriptor that becomes readable at a packet, for epoll; -1: none. arm() before sleeping, disarm() after.
    int interrupt_descriptor(std::uint16_t queue) const;
    void arm(std::uint16_t queue) const;
    void disarm(std::uint16_t queue) const;

private:
    Port() = default;
    int setup(const PortConfig& config, ErrorText error);
    int take_pools(const PortSetup& setup, std::uint16_t rx_descriptors_min, std::uint16_t tx_descriptors_min,
                   ErrorText error);
    int start(PortSetup& setup, const PortIdentity& identity, std::uint64_t mark, ErrorText error);
    void await_link(const PortIdentity& identity, bool has_speed);
    void find_interrupts();
    int hear_groups();
    bool watch_device(std::int64_t now_ns, DriverEvents& events);
    void reconnect(std::int64_t now_ns);
    void stop();
    void let_go();
    void warn(const std::string& line) { warnings_ += line + "\n"; }

    std::uint16_t id_ = 0;
    bool claimed_ = false;
    std::uint16_t vlan_ = 0;  // the tag that the card lets through
    bool started_ = false;
    bool isolates_flows_ = false;
    bool must_reconnect_ = false;  // a memif client, whose driver connects at the start and never again
    std::int64_t reconnected_ns_ = 0;
    bool hears_all_multicast_ = false;
    bool hears_everything_ = false;
    std::vector<ipstack::MacAddress> groups_;  // that it listens to
    std::uint64_t rx_dropped_before_ = 0;      // by the device before we opened it
    mutable std::atomic<std::uint64_t> rx_dropped_last_{0};
    std::unique_ptr<LinkWatch> link_;
    std::vector<std::string> extended_names_;    // of xstats, by place; empty: a basic one counts the same
    std::vector<int> interrupt_descriptors_;     // per queue; -1: none
    std::vector<bool> interrupts_need_reading_;  // an eventfd: stays readable until it is read
    std::string name_, driver_, warnings_;
    ipstack::MacAddress mac_{};
    PortAbilities abilities_;
    rte_mempool* receive_pool_ = nullptr;
    rte_mempool* transmit_pool_ = nullptr;
    bool up_ = true;
    std::int64_t link_checked_ns_ = 0;
    std::int64_t buffers_checked_ns_ = 0;  // 0: never
    std::uint64_t rx_no_buffer_ = 0;       // as last seen
    bool told_of_no_buffers_ = false;
    DeviceState device_ = DeviceState::usable;  // as the device last reported
};

}  // namespace dlcp::dpdk

// The driver over AF_XDP: whole frames through a card's queues, past the kernel's network stack, while the kernel
// keeps the interface and everything on it that is not ours. A dlcp_io of this plugin is a Driver.
//
//   engine ── dlcp_packet ── Transmitter, Receiver ── Queue: socket, memory, rings ── kernel ── card
//                                   │                                                   │
//                          ipstack::Interface: who is where                 Filter: which frames are ours
//
// It has an IP address of its own, which the kernel must not have: both would answer for it. An interface has one
// driver; several processes of a host share a card by a macvlan each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/clock.hpp"
#include "io/driver_events.hpp"
#include "io/io_table.h"
#include "io/poller.hpp"
#include "io/udp_address.hpp"
#include "io/xdp/device.hpp"
#include "io/xdp/filter.hpp"
#include "io/xdp/options.hpp"
#include "io/xdp/queue.hpp"
#include "io/xdp/receive.hpp"
#include "io/xdp/transmit.hpp"
#include "ipstack/interface.hpp"

namespace dlcp::xdp {

class Driver {
public:
    static int open(const dlcp_io_config& config, std::unique_ptr<Driver>& out, ErrorText error);
    // Sends what was put, for which it may wait 2 ms.
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    // As driver_table.hpp says. What moves packets allocates seldom, for a new destination or a packet that waits. Where
    // even that fails, buffers would be lost half way through a burst: the process ends instead (noexcept).
    dlcp_io_capabilities capabilities() const;
    int resolve(const char* text, dlcp_address& out, ErrorText error) const;
    static std::string format(const dlcp_address& address) { return udp::format_address(address); }
    const dlcp_address& local_address() const { return local_; }
    int tx_get(dlcp_packet* packets, int count) noexcept;
    int tx_put(dlcp_packet* packets, int count) noexcept;
    int rx(dlcp_packet* packets, int count) noexcept;
    void rx_done(dlcp_packet* packets, int count) noexcept { receiver_->done(packets, count); }
    void wait(std::int64_t timeout_ns) noexcept;
    void wake() { poller_.wake(); }
    static std::int64_t now_ns() { return monotonic_ns(); }
    int watch(int descriptor, std::uint8_t* readable) { return poller_.watch(descriptor, readable); }
    void unwatch(int descriptor) { poller_.unwatch(descriptor); }
    dlcp_io_counters counters() const;
    const std::string& warnings() const { return warnings_; }
    int events(dlcp_io_event* out, int count) { return events_.take(out, count); }
    std::vector<dlcp_io_statistic> statistics() const;

private:
    Driver() = default;
    int configure(const dlcp_io_config& config, ErrorText error);
    int choose_size(const dlcp_io_config& config, ErrorText error);
    int open_queues(const dlcp_io_config& config, ErrorText error);
    int attach(ErrorText error);
    void warn_of_vlan();
    int watch_queues(ErrorText error);
    int claim(ErrorText error);
    // What is due, besides the engine's packets.
    void serve(std::int64_t now_ns);
    void linger();
    void check_link(std::int64_t now_ns);
    void note_starvation(std::int64_t now_ns);
    void tell_of(const ipstack::InterfaceEvent& event, std::int64_t now_ns);

    Options options_;
    Device device_;
    std::uint16_t paths_ = 1;
    std::uint32_t datagram_bytes_ = 0;
    std::uint32_t receive_chunks_ = 0;  // per queue
    dlcp_address local_ = {};
    std::string warnings_;
    dlcp_io_counters counters_ = {};
    DriverEvents events_;

    // Destroyed from the last to the first: the program before the sockets that it sends frames to.
    std::optional<ipstack::Interface> interface_;
    std::vector<std::unique_ptr<Queue>> queues_;
    std::optional<Transmitter> transmitter_;
    std::optional<Receiver> receiver_;
    GroupMembership groups_;
    LinkWatch link_;
    Poller poller_;
    Filter filter_;

    LinkWatch::State link_state_ = LinkWatch::State::up;
    std::int64_t link_checked_ns_ = 0;
    bool starvation_told_ = false;
};

}  // namespace dlcp::xdp

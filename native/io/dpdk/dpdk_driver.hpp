// The "dpdk" driver: datagrams over Ethernet ports that this process drives itself, or over DPDK's virtual devices.
//
// Joins ports (port.hpp), IP interfaces on them (ipstack/interface.hpp) and the engine's table. What it does beyond the
// two is housekeeping: timers, link changes, answers to those who ask for our address, events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/units.hpp"
#include "io/clock.hpp"
#include "io/dpdk/address_pairs.hpp"
#include "io/dpdk/interrupt_thread.hpp"
#include "io/dpdk/lcore.hpp"
#include "io/dpdk/options.hpp"
#include "io/dpdk/receive.hpp"
#include "io/dpdk/transmit.hpp"
#include "io/dpdk/waiting.hpp"
#include "io/driver_events.hpp"
#include "io/io_table.h"

namespace dlcp::dpdk {

// A dlcp_io of this driver. Between calls every mbuf is a pool's, a device's, lent to the engine, or kept by one of the
// parts below, each of which frees what it has.
class Driver final : public Waiter::Work {
public:
    static int open(const dlcp_io_config& config, std::unique_ptr<Driver>& out, ErrorText error) {
        out = std::make_unique<Driver>();
        return out->configure(config, error);
    }
    ~Driver() override;

    // As driver_table.hpp says.
    dlcp_io_capabilities capabilities() const;
    int resolve(const char* text, dlcp_address& out, ErrorText error);
    std::string format(const dlcp_address& address) const;
    const dlcp_address& local_address() const { return local_; }
    int tx_get(dlcp_packet* packets, int count) {
        const Lcore::Use use(lcore_);
        return transmitter_->get(packets, count);
    }
    int tx_put(const dlcp_packet* packets, int count);
    int rx(dlcp_packet* packets, int count);
    void rx_done(const dlcp_packet* packets, int count) {
        const Lcore::Use use(lcore_);
        receiver_->done(packets, count);
    }
    void wait(std::int64_t timeout_ns) {
        const Lcore::Use use(lcore_);
        waiter_.wait(timeout_ns, *this);
    }
    void wake() { waiter_.wake(); }
    static std::int64_t now_ns() { return monotonic_ns(); }
    dlcp_io_counters counters() const;
    const std::string& warnings() const { return warnings_; }
    int watch(int descriptor, std::uint8_t* readable) { return waiter_.watch(descriptor, readable); }
    void unwatch(int descriptor) { waiter_.unwatch(descriptor); }
    int events(dlcp_io_event* out, int count) { return events_.take(out, count); }
    std::vector<dlcp_io_statistic> statistics() const;

    // Waiter::Work
    bool poll(std::int64_t now_ns) override;
    std::int64_t deadline_ns() const override { return due_ns_; }

private:
    int configure(const dlcp_io_config& config, ErrorText error);
    int open_uplinks(const Options& options, const dlcp_io_config& config, ErrorText error);
    // Looks whether the addresses are free, where there is a link to look at; or only announces them.
    int claim_addresses(bool probe, ErrorText error);
    // A turn meanwhile. True: something came.
    bool drop_early();
    // What was sent last leaves before its ports are stopped.
    void linger();
    // Timers, links, events, frames of our own: when something is due, or frames came that are no datagrams. Without the
    // memory for it, it is tried again when it is next due.
    void look_after(std::int64_t now_ns) noexcept;
    void look_after_all(std::int64_t now_ns);
    void look_after_if_due(std::int64_t now_ns) {
        if (receiver_->take_handled() || now_ns >= due_ns_) look_after(now_ns);
    }
    // For memif ports only (interrupt_thread.hpp): nobody else's burst, and no interrupt, meanwhile.
    std::unique_lock<std::recursive_mutex> alone() const {
        return has_memif_ ? lock_memif() : std::unique_lock<std::recursive_mutex>();
    }
    void handle_memif(std::int64_t now_ns);
    // Packets came, so there is a link, seen or not.
    void hold_memif(std::int64_t now_ns) {
        heard_ns_ = now_ns;
        if (hold_ == nullptr) hold_ = std::make_unique<InterruptHold>();
    }
    void tell_of(const Uplink& uplink, const ipstack::InterfaceEvent& event, std::int64_t now_ns);

    Lcore lcore_;
    std::uint16_t udp_port_ = 0;
    std::uint32_t max_datagram_bytes_ = 0;
    dlcp_address local_ = {};
    std::string text_;  // of all our addresses
    std::string warnings_;
    dlcp_io_counters counters_ = {};
    DriverEvents events_;
    std::int64_t due_ns_ = 0;   // when look_after() is next due
    std::int64_t sent_ns_ = 0;  // when packets last left
    bool has_memif_ = false;
    std::int64_t heard_ns_ = 0;              // when packets last came, of memif ports
    std::int64_t memif_due_ns_ = INT64_MAX;  // when handle_memif() is
    std::vector<Uplink> uplinks_;
    std::unique_ptr<InterruptHold> hold_;  // while a memif port has a link
    std::unique_ptr<AddressPairs> pairs_;
    std::unique_ptr<Transmitter> transmitter_;
    std::unique_ptr<Receiver> receiver_;
    Waiter waiter_;
};

}  // namespace dlcp::dpdk

// A driver around a driver that loses packets on purpose: what a lossy network does, where there is none.
//
// It drops each packet that arrives with a given probability, whatever the packet carries, and hands all else through. It
// draws per packet, after the driver has taken merged datagrams apart, so that what is lost is one packet, as on a wire.
// The draws come from a seed; which packets they hit depends on the order of arrival.
//
// For demonstrations and tests. It loses nothing that goes round the driver (shared memory).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/random.hpp"
#include "io/driver_handle.hpp"

namespace dlcp {

class LossyDriver : private DriverHandle {
public:
    // Takes over `io`. `loss_ratio` in [0, 1]. Deleted by close of table().
    LossyDriver(const dlcp_io_table& inner, dlcp_io* io, double loss_ratio, std::uint64_t seed);

    // To be called with io(). It has the inner driver's name, and lives as long as this object.
    const dlcp_io_table& table() const { return table_; }
    dlcp_io* io() { return reinterpret_cast<dlcp_io*>(this); }
    // Packets dropped so far. From any thread.
    std::uint64_t dropped_packets() const { return dropped_packets_.load(std::memory_order_relaxed); }

    // Of the driver's concept (driver_table.hpp).
    using DriverHandle::capabilities, DriverHandle::resolve, DriverHandle::format, DriverHandle::local_address,
        DriverHandle::tx_get, DriverHandle::tx_put, DriverHandle::rx_done, DriverHandle::wait, DriverHandle::wake,
        DriverHandle::now_ns, DriverHandle::events, DriverHandle::statistics;
    int rx(dlcp_packet* packets, int count);
    dlcp_io_counters counters() const;
    const std::string& warnings() const { return warnings_; }

private:
    const dlcp_io_table table_;
    std::string warnings_;
    // A packet is lost when 32 random bits are below this: 2^32 loses all.
    const std::uint64_t threshold_;
    Random random_;
    std::vector<dlcp_packet> dropped_;  // of one burst, until they are given back
    std::atomic<std::uint64_t> dropped_packets_{0};
    std::atomic<std::uint64_t> dropped_bytes_{0};
};

}  // namespace dlcp

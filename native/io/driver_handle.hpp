// An open driver as a C++ object: what a table of functions (io_table.h) offers, and closed with its owner.
//
// Also the base of drivers that are put around another one (local_driver.cpp, lossy_driver.hpp): they declare anew what
// they do otherwise, and the rest goes to the driver within.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/error_text.hpp"
#include "io/io_table.h"

namespace dlcp {

class DriverHandle {
public:
    // Takes over `io`, which `table` has opened. The table outlives this.
    DriverHandle(const dlcp_io_table& table, dlcp_io* io) : table_(&table), io_(io) {}
    ~DriverHandle() { table_->close(io_); }
    DriverHandle(const DriverHandle&) = delete;
    DriverHandle& operator=(const DriverHandle&) = delete;

    const dlcp_io_table& table() const { return *table_; }
    dlcp_io* io() const { return io_; }

    dlcp_io_capabilities capabilities() const;
    int resolve(const char* text, dlcp_address& out, ErrorText error) const {
        return table_->resolve(io_, text, &out, error.text, error.bytes);
    }
    std::string format(const dlcp_address& address) const;
    dlcp_address local_address() const;
    int tx_get(dlcp_packet* packets, int count) const { return table_->tx_get(io_, packets, count); }
    int tx_put(dlcp_packet* packets, int count) const { return table_->tx_put(io_, packets, count); }
    int rx(dlcp_packet* packets, int count) const { return table_->rx(io_, packets, count); }
    void rx_done(dlcp_packet* packets, int count) const { table_->rx_done(io_, packets, count); }
    void wait(std::int64_t timeout_ns) const { table_->wait(io_, timeout_ns); }
    void wake() const { table_->wake(io_); }
    std::int64_t now_ns() const { return table_->now_ns(io_); }
    dlcp_io_counters counters() const;
    int watch(int descriptor, std::uint8_t* readable) const {
        return table_->watch != nullptr ? table_->watch(io_, descriptor, readable) : -ENOTSUP;
    }
    void unwatch(int descriptor) const {
        if (table_->unwatch != nullptr) table_->unwatch(io_, descriptor);
    }
    int events(dlcp_io_event* out, int count) const {
        return table_->events != nullptr ? table_->events(io_, out, count) : 0;
    }
    std::vector<dlcp_io_statistic> statistics() const;

private:
    const dlcp_io_table* table_;
    dlcp_io* io_;
};

}  // namespace dlcp

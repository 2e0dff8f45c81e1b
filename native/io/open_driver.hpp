// The driver of one runtime: found by its name, opened as the runtime's options say, and closed with this.
//
// Functions of the table are called through here only; who may call which when is io_table.h's and the host's matter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/io_table.h"
#include "io/lossy_driver.hpp"
#include "io/runtime_options.hpp"

namespace dlcp {

class OpenDriver {
public:
    // Throws RuntimeError. Blocks for a name lookup at most.
    explicit OpenDriver(const RuntimeOptions& options);
    ~OpenDriver();
    OpenDriver(const OpenDriver&) = delete;
    OpenDriver& operator=(const OpenDriver&) = delete;

    const dlcp_io_table& table() const { return *table_; }
    dlcp_io* io() const { return io_; }
    const dlcp_io_capabilities& capabilities() const { return capabilities_; }

    std::string local_address() const;
    std::string warnings() const { return table_->warnings(io_); }
    // Throws RuntimeError that names `rank`, whose address it is.
    dlcp_address resolve(const std::string& text, std::uint32_t rank) const;
    std::string format(const dlcp_address& address) const;

    dlcp_io_counters counters() const;
    // What only this driver counts, by name.
    std::vector<std::pair<std::string, std::uint64_t>> statistics() const;
    // Packets that arrived and were dropped because of RuntimeOptions::inject_loss_ratio. From any thread.
    std::uint64_t injected_lost_packets() const { return lossy_ ? lossy_->dropped_packets() : 0; }

private:
    const dlcp_io_table* table_;
    dlcp_io* io_ = nullptr;
    std::unique_ptr<LossyDriver> lossy_;  // around the driver while loss is injected
    dlcp_io_capabilities capabilities_{};
};

}  // namespace dlcp

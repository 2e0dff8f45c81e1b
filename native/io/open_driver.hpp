// The driver of one runtime: found by its name, opened as the runtime's options say, and closed with this. Which thread
// may call which function when is what io_table.h and runtime.hpp say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/driver_handle.hpp"
#include "io/lossy_driver.hpp"
#include "io/runtime_options.hpp"

namespace dlcp {

class OpenDriver {
public:
    // Throws IoError. Blocks for a name lookup at most.
    explicit OpenDriver(const RuntimeOptions& options);

    const dlcp_io_table& table() const { return handle_->table(); }
    dlcp_io* io() const { return handle_->io(); }
    dlcp_io_capabilities capabilities() const { return handle_->capabilities(); }

    std::string local_address() const { return handle_->format(handle_->local_address()); }
    std::string warnings() const { return table().warnings(io()); }
    // Throws IoError that names `rank`, whose address it is.
    dlcp_address resolve(const std::string& text, std::uint32_t rank) const;
    std::string format(const dlcp_address& address) const { return handle_->format(address); }
    bool has_events() const { return table().events != nullptr; }
    int events(dlcp_io_event* out, int count) const { return handle_->events(out, count); }

    dlcp_io_counters counters() const { return handle_->counters(); }
    // What only this driver counts, by name.
    std::vector<std::pair<std::string, std::uint64_t>> statistics() const;
    // Packets that arrived and were dropped because of RuntimeOptions::inject_loss_ratio. From any thread.
    std::uint64_t injected_lost_packets() const { return lossy_ != nullptr ? lossy_->dropped_packets() : 0; }

private:
    std::optional<DriverHandle> handle_;
    LossyDriver* lossy_ = nullptr;  // what handle_ holds, while loss is injected
};

}  // namespace dlcp

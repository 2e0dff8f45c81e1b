#include "io/lossy_driver.hpp"

#include <cmath>
#include <cstdio>

#include "io/driver_table.hpp"

namespace dlcp {

LossyDriver::LossyDriver(const dlcp_io_table& inner, dlcp_io* io, double loss_ratio, std::uint64_t seed)
    : DriverHandle(inner, io),
      table_(driver_table<LossyDriver>(inner.name)),
      warnings_(inner.warnings(io)),
      threshold_(static_cast<std::uint64_t>(std::llround(loss_ratio * 4294967296.0))),
      random_(seed) {
    char line[160];
    std::snprintf(line, sizeof line,
                  "INJECTED LOSS: %g %% of the packets that arrive here are dropped on purpose; unset "
                  "inject_loss_ratio for real work\n",
                  loss_ratio * 100);
    warnings_ += line;
}

dlcp_io_counters LossyDriver::counters() const {
    dlcp_io_counters out = DriverHandle::counters();
    // What a network had lost would not have been counted as received.
    out.rx_packets -= dropped_packets_.load(std::memory_order_relaxed);
    out.rx_bytes -= dropped_bytes_.load(std::memory_order_relaxed);
    return out;
}

// What is kept moves to the front; what is dropped goes back at once. An answer of fewer packets than there are is
// no harm: wait() returns at once while the inner driver has more.
int LossyDriver::rx(dlcp_packet* packets, int count) {
    const int received = DriverHandle::rx(packets, count);
    int kept = 0;
    std::uint64_t dropped_bytes = 0;
    dropped_.clear();
    for (int i = 0; i < received; ++i) {
        // A channel is not a network: what comes out of one, and word that its other end has gone, is let through.
        const bool network = (packets[i].flags & DLCP_PACKET_TRUSTED) == 0;
        if (network && (random_.next() >> 32) < threshold_) {
            dropped_bytes += packets[i].head_bytes;
            dropped_.push_back(packets[i]);
        } else {
            packets[kept++] = packets[i];
        }
    }
    if (!dropped_.empty()) {
        dropped_packets_.fetch_add(dropped_.size(), std::memory_order_relaxed);
        dropped_bytes_.fetch_add(dropped_bytes, std::memory_order_relaxed);
        rx_done(dropped_.data(), static_cast<int>(dropped_.size()));
    }
    return received < 0 ? received : kept;
}

}  // namespace dlcp

// What the driver counts beyond dlcp_io_counters, by name.
#include <rte_mempool.h>

#include <string>

#include "io/dpdk/dpdk_driver.hpp"
#include "io/driver_statistics.hpp"

namespace dlcp::dpdk {

std::vector<dlcp_io_statistic> Driver::statistics() const {
    std::vector<dlcp_io_statistic> out;
    const TransmitStatistics& transmit = transmitter_->statistics();
    append(out, "tx_copied_packets", transmit.copied_packets);
    append(out, "tx_gathered_packets", transmit.gathered_packets);
    append(out, "tx_pending_packets", transmit.pending_packets);
    append(out, "tx_pending_dropped_packets", transmit.pending_dropped_packets);
    append(out, "tx_no_buffer_calls", transmit.no_buffer_calls);
    append(out, "tx_full_queue_waits", transmit.full_queue_waits);
    append(out, "dropped_events", events_.dropped());
    for (const Uplink& uplink : uplinks_) {
        const std::string port = "port" + std::to_string(uplink.port->id()) + "_";
        for (const ipstack::NamedCounter& counter : ipstack::named(uplink.interface->counters()))
            append(out, port + counter.name, counter.value);
        append(out, port + "rx_used_buffers", rte_mempool_in_use_count(uplink.port->receive_pool()));
        append(out, port + "tx_used_buffers", rte_mempool_in_use_count(uplink.port->transmit_pool()));
        uplink.port->append_statistics(out);
    }
    return out;
}

}  // namespace dlcp::dpdk

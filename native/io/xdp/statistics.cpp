// What the driver counts beyond dlcp_io_counters, by name.
#include <cstdint>

#include "io/driver_statistics.hpp"
#include "io/xdp/driver.hpp"

namespace dlcp::xdp {

std::vector<dlcp_io_statistic> Driver::statistics() const {
    xdp_statistics sockets = {};
    std::uint64_t zero_copy_queues = 0;
    for (const auto& queue : queues_) {
        const xdp_statistics one = queue->statistics();
        sockets.rx_dropped += one.rx_dropped;
        sockets.rx_invalid_descs += one.rx_invalid_descs;
        sockets.tx_invalid_descs += one.tx_invalid_descs;
        sockets.rx_ring_full += one.rx_ring_full;
        sockets.rx_fill_ring_empty_descs += one.rx_fill_ring_empty_descs;
        sockets.tx_ring_empty_descs += one.tx_ring_empty_descs;
        if (queue->zero_copy()) ++zero_copy_queues;
    }
    const ipstack::NamedCounter of_sockets[] = {
        {"queues", queues_.size()},
        {"zero_copy_queues", zero_copy_queues},
        {"native_programs", filter_.native() ? 1u : 0u},
        {"rx_dropped_frames", sockets.rx_dropped},
        {"rx_ring_full_frames", sockets.rx_ring_full},
        {"rx_fill_ring_empty_frames", sockets.rx_fill_ring_empty_descs},
        {"rx_invalid_descriptors", sockets.rx_invalid_descs},
        {"tx_invalid_descriptors", sockets.tx_invalid_descs},
        {"tx_ring_empty_looks", sockets.tx_ring_empty_descs},
        {"dropped_events", events_.dropped()},
    };
    std::vector<dlcp_io_statistic> out;
    for (const auto& counter : of_sockets) append(out, counter.name, counter.value);
    for (const auto& counter : ipstack::named(interface_->counters())) append(out, counter.name, counter.value);
    return out;
}

}  // namespace dlcp::xdp

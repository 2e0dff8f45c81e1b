// What the driver counts beyond dlcp_io_counters, by name.
#include <rte_mempool.h>
#include <string.h>

#include <string>

#include "io/dpdk/dpdk_driver.hpp"

namespace dlcp::dpdk {

namespace {

void append(std::vector<dlcp_io_statistic>& out, const std::string& name, std::uint64_t value) {
    dlcp_io_statistic statistic = {};
    strncpy(statistic.name, name.c_str(), sizeof statistic.name - 1);
    statistic.value = value;
    out.push_back(statistic);
}

void append_interface(std::vector<dlcp_io_statistic>& out, const std::string& port,
                      const ipstack::InterfaceCounters& counters) {
    const struct {
        const char* name;
        std::uint64_t value;
    } named[] = {
        {"rx_bad_checksum_frames", counters.rx_bad_checksum},
        {"rx_partial_checksum_frames", counters.rx_partial_checksum},
        {"rx_fragment_frames", counters.rx_fragments},
        {"rx_malformed_frames", counters.rx_malformed},
        {"rx_other_address_frames", counters.rx_other_address},
        {"rx_other_port_frames", counters.rx_other_port},
        {"rx_other_protocol_frames", counters.rx_other_protocol},
        {"rx_address_request_frames", counters.rx_address_requests},
        {"rx_echo_request_frames", counters.rx_echo_requests},
        {"tx_address_request_frames", counters.tx_address_requests},
        {"tx_own_frames", counters.tx_own_frames},
        {"tx_own_dropped_frames", counters.tx_own_frames_dropped},
        {"lost_neighbours", counters.neighbours_lost},
        {"address_conflict_frames", counters.rx_address_conflicts},
    };
    for (const auto& counter : named) append(out, port + counter.name, counter.value);
}

}  // namespace

std::vector<dlcp_io_statistic> Driver::statistics() const {
    std::vector<dlcp_io_statistic> out;
    const TransmitStatistics& transmit = transmitter_->statistics();
    append(out, "tx_copied_packets", transmit.copied_packets);
    append(out, "tx_gathered_packets", transmit.gathered_packets);
    append(out, "tx_pending_packets", transmit.pending_packets);
    append(out, "tx_pending_dropped_packets", transmit.pending_dropped_packets);
    append(out, "tx_no_buffer_calls", transmit.no_buffer_calls);
    append(out, "tx_full_queue_waits", transmit.full_queue_waits);
    for (const Uplink& uplink : uplinks_) {
        const std::string port = "port" + std::to_string(uplink.port->id()) + "_";
        append_interface(out, port, uplink.interface->counters());
        append(out, port + "rx_used_buffers", rte_mempool_in_use_count(uplink.port->receive_pool()));
        append(out, port + "tx_used_buffers", rte_mempool_in_use_count(uplink.port->transmit_pool()));
        uplink.port->append_statistics(out);
    }
    return out;
}

}  // namespace dlcp::dpdk

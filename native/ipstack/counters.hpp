// What an interface counts, and the names under which every driver shows it (dlcp_io_statistic: unit last).
#pragma once

#include <array>
#include <cstdint>

namespace dlcp::ipstack {

struct InterfaceCounters {
    std::uint64_t rx_datagrams = 0;
    std::uint64_t rx_bad_checksum_frames = 0;
    // The sender left it to a card that did not come (veth); accepted.
    std::uint64_t rx_partial_checksum_frames = 0;
    std::uint64_t rx_fragment_frames = 0;
    // Longer than the MTU: another MTU there, or datagrams that nobody has cut up yet (UDP_SEGMENT over veth).
    std::uint64_t rx_oversized_frames = 0;
    std::uint64_t rx_malformed_frames = 0;
    std::uint64_t rx_other_address_frames = 0;  // not to our IP address or VLAN
    std::uint64_t rx_other_port_frames = 0;
    std::uint64_t rx_other_protocol_frames = 0;
    std::uint64_t rx_address_request_frames = 0;  // ARP requests and solicitations for our address
    std::uint64_t rx_echo_request_frames = 0;
    std::uint64_t rx_listener_query_frames = 0;  // queries of multicast listener discovery
    std::uint64_t tx_address_request_frames = 0;
    std::uint64_t tx_address_probe_frames = 0;  // whether our address is free
    std::uint64_t tx_listener_report_frames = 0;
    std::uint64_t tx_own_frames = 0;          // all that next_frame() gave
    std::uint64_t tx_own_dropped_frames = 0;  // no room among those that wait
    std::uint64_t lost_neighbours = 0;
    std::uint64_t address_conflict_frames = 0;
};

struct NamedCounter {
    const char* name;
    std::uint64_t value;
};

inline auto named(const InterfaceCounters& counters) {
    return std::to_array<NamedCounter>({
        {"rx_datagrams", counters.rx_datagrams},
        {"rx_bad_checksum_frames", counters.rx_bad_checksum_frames},
        {"rx_partial_checksum_frames", counters.rx_partial_checksum_frames},
        {"rx_fragment_frames", counters.rx_fragment_frames},
        {"rx_oversized_frames", counters.rx_oversized_frames},
        {"rx_malformed_frames", counters.rx_malformed_frames},
        {"rx_other_address_frames", counters.rx_other_address_frames},
        {"rx_other_port_frames", counters.rx_other_port_frames},
        {"rx_other_protocol_frames", counters.rx_other_protocol_frames},
        {"rx_address_request_frames", counters.rx_address_request_frames},
        {"rx_echo_request_frames", counters.rx_echo_request_frames},
        {"rx_listener_query_frames", counters.rx_listener_query_frames},
        {"tx_address_request_frames", counters.tx_address_request_frames},
        {"tx_address_probe_frames", counters.tx_address_probe_frames},
        {"tx_listener_report_frames", counters.tx_listener_report_frames},
        {"tx_own_frames", counters.tx_own_frames},
        {"tx_own_dropped_frames", counters.tx_own_dropped_frames},
        {"lost_neighbours", counters.lost_neighbours},
        {"address_conflict_frames", counters.address_conflict_frames},
    });
}

}  // namespace dlcp::ipstack

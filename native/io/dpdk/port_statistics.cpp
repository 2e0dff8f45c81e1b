#include "io/dpdk/port_statistics.hpp"

#include <rte_ethdev.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "io/driver_statistics.hpp"

namespace dlcp::dpdk {
namespace {

// The extended counters that DPDK makes of the basic ones (lib/ethdev, eth_dev_stats_strings).
constexpr std::array<std::string_view, 8> listed_already{
    "rx_good_packets",  "tx_good_packets", "rx_good_bytes", "tx_good_bytes",
    "rx_missed_errors", "rx_errors",       "tx_errors",     "rx_mbuf_allocation_errors"};

// "RX-Dropped Pkts" as "rx_dropped_pkts".
std::string plain_name(std::string_view text) {
    std::string name;
    for (const char c : text) {
        const auto letter = static_cast<unsigned char>(c);
        if (std::isalnum(letter)) {
            name += static_cast<char>(std::tolower(letter));
        } else if (!name.empty() && name.back() != '_') {
            name += '_';
        }
    }
    while (!name.empty() && name.back() == '_') name.pop_back();
    return name;
}

}  // namespace

std::vector<std::string> extended_statistic_names(std::uint16_t port) {
    const int count = rte_eth_xstats_get_names(port, nullptr, 0);
    if (count <= 0) return {};
    std::vector<rte_eth_xstat_name> raw(static_cast<std::size_t>(count));
    const int got = rte_eth_xstats_get_names(port, raw.data(), static_cast<unsigned>(count));
    if (got <= 0 || got > count) return {};
    std::vector<std::string> names;
    for (int i = 0; i < got; ++i) {
        const std::string_view name = raw[static_cast<std::size_t>(i)].name;
        const bool listed = std::find(listed_already.begin(), listed_already.end(), name) != listed_already.end();
        names.push_back(listed ? std::string() : plain_name(name));
    }
    return names;
}

void append_port_statistics(std::uint16_t port, const std::vector<std::string>& extended_names,
                            std::vector<dlcp_io_statistic>& out) {
    const std::string prefix = "port" + std::to_string(port) + "_";
    rte_eth_stats basic{};
    if (rte_eth_stats_get(port, &basic) == 0) {
        append(out, prefix + "rx_packets", basic.ipackets);
        append(out, prefix + "rx_bytes", basic.ibytes);
        append(out, prefix + "rx_missed_packets", basic.imissed);
        append(out, prefix + "rx_error_packets", basic.ierrors);
        append(out, prefix + "rx_no_buffer_packets", basic.rx_nombuf);
        append(out, prefix + "tx_packets", basic.opackets);
        append(out, prefix + "tx_bytes", basic.obytes);
        append(out, prefix + "tx_error_packets", basic.oerrors);
    }
    if (extended_names.empty()) return;
    std::vector<rte_eth_xstat> values(extended_names.size());
    const int got = rte_eth_xstats_get(port, values.data(), static_cast<unsigned>(values.size()));
    // More than there were names: the device was configured anew meanwhile.
    if (got <= 0 || static_cast<std::size_t>(got) > values.size()) return;
    for (int i = 0; i < got; ++i) {
        const rte_eth_xstat& value = values[static_cast<std::size_t>(i)];
        if (value.id < extended_names.size() && !extended_names[value.id].empty()) {
            append(out, prefix + extended_names[value.id], value.value);
        }
    }
}

}  // namespace dlcp::dpdk

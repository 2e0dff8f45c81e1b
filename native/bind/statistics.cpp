#include "bind/statistics.hpp"

#include "engine/wire.hpp"

namespace dlcp::bind {
namespace {

nb::dict to_dict(const Counters& c) {
    nb::dict out;
#define DLCP_FIELD(field) out[#field] = c.field
    DLCP_FIELD(data_packets_sent);
    DLCP_FIELD(data_bytes_sent);
    DLCP_FIELD(header_bytes_sent);
    DLCP_FIELD(control_packets_sent);
    DLCP_FIELD(control_bytes_sent);
    DLCP_FIELD(repair_packets_sent);
    DLCP_FIELD(repair_bytes_sent);
    DLCP_FIELD(acked_packets);
    DLCP_FIELD(lost_packets);
    DLCP_FIELD(spurious_losses);
    DLCP_FIELD(probes_sent);
    DLCP_FIELD(datagrams_shrunk);
    DLCP_FIELD(data_packets_received);
    DLCP_FIELD(data_bytes_received);
    DLCP_FIELD(data_bytes_placed);
    DLCP_FIELD(control_packets_received);
    DLCP_FIELD(duplicate_blocks);
    DLCP_FIELD(late_blocks);
    DLCP_FIELD(ce_packets_received);
    DLCP_FIELD(trimmed_packets_received);
    DLCP_FIELD(held_packets);
    DLCP_FIELD(messages_sent);
    DLCP_FIELD(messages_received);
    DLCP_FIELD(messages_failed);
    DLCP_FIELD(abandoned_blocks);
    DLCP_FIELD(abandoned_bytes);
    DLCP_FIELD(abandoned_by_peer_blocks);
    DLCP_FIELD(abandoned_by_peer_bytes);
    DLCP_FIELD(foreign_job);
    DLCP_FIELD(stale_session);
    DLCP_FIELD(bad_tag);
    DLCP_FIELD(unauthenticated);
    DLCP_FIELD(no_common_cipher);
    DLCP_FIELD(replayed);
    DLCP_FIELD(malformed_frames);
    DLCP_FIELD(inconsistent);
#undef DLCP_FIELD
    nb::dict malformed;
    for (std::size_t i = 1; i < c.malformed.size(); ++i)
        malformed[wire::name(static_cast<wire::ParseError>(i))] = c.malformed[i];
    out["malformed"] = malformed;
    return out;
}

nb::dict to_dict(const dlcp_io_counters& c) {
    nb::dict out;
#define DLCP_FIELD(field) out[#field] = c.field
    DLCP_FIELD(tx_packets);
    DLCP_FIELD(tx_bytes);
    DLCP_FIELD(tx_calls);
    DLCP_FIELD(rx_packets);
    DLCP_FIELD(rx_bytes);
    DLCP_FIELD(rx_calls);
    DLCP_FIELD(tx_dropped_packets);
    DLCP_FIELD(rx_dropped_datagrams);
    DLCP_FIELD(rx_truncated_packets);
    DLCP_FIELD(ce_packets);
    DLCP_FIELD(channel_tx_packets);
    DLCP_FIELD(channel_tx_bytes);
    DLCP_FIELD(channel_rx_packets);
    DLCP_FIELD(channel_rx_bytes);
    DLCP_FIELD(channels);
#undef DLCP_FIELD
    return out;
}

}  // namespace

nb::dict to_dict(const RuntimeStatistics& s) {
    nb::dict out;
    out["engine"] = to_dict(s.engine);
    out["io"] = to_dict(s.io);
    out["injected_lost_packets"] = s.injected_lost_packets;
    out["outstanding_operations"] = s.outstanding_operations;
    out["log_entries_dropped"] = s.log_entries_dropped;
    out["driver_waits"] = s.driver_waits;
    out["role_changes"] = s.role_changes;
    return out;
}

nb::dict to_dict(const PeerStatistics& s) {
    nb::dict out;
    out["rank"] = s.rank;
    out["established"] = s.established;
    out["silent_s"] = s.silent < Duration{0} ? nb::none() : nb::object(nb::float_(in_seconds(s.silent)));
    out["rtt_s"] = in_seconds(s.rtt);
    out["rtt_s_min"] = in_seconds(s.rtt_min);
    out["queue_delay_s"] = in_seconds(s.queue_delay);
    out["window_bytes"] = s.window.value;
    out["in_flight_bytes"] = s.in_flight.value;
    out["credit_bytes"] = s.credit.value;
    out["max_datagram_bytes"] = s.max_datagram_bytes;
    return out;
}

nb::dict to_dict(const PathStatistics& s) {
    nb::dict out;
    out["path"] = s.path;
    out["packets_sent"] = s.packets_sent;
    out["packets_acked"] = s.packets_acked;
    out["packets_lost"] = s.packets_lost;
    out["ce_packets"] = s.ce_packets;
    out["loss_ratio"] = s.loss_ratio;
    out["rtt_s"] = in_seconds(s.rtt);
    out["up"] = s.up;
    return out;
}

}  // namespace dlcp::bind

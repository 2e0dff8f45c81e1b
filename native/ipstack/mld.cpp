// Writes reports, reads queries, and keeps the timer between them.
#include "ipstack/mld.hpp"

#include <algorithm>
#include <cstring>

#include "ipstack/icmp.hpp"

namespace dlcp::ipstack {

namespace {

// RFC 3810, 9.
constexpr unsigned robustness_default = 2;
constexpr Duration query_interval = seconds(125);
constexpr Duration unsolicited_report_interval = seconds(1);

constexpr std::uint32_t query_bytes_v1 = 24, query_bytes_v2 = 28;
constexpr std::uint8_t report_v1 = 131, report_v2 = 143;
constexpr std::uint8_t record_is_exclude = 2, record_change_to_exclude = 4;  // of no sources: all are listened to
constexpr std::uint8_t option_pad1 = 0, option_router_alert = 5;

// Milliseconds; from 32768 on an exponent and a mantissa (RFC 3810, 5.1.3).
Duration delay_of(std::uint16_t code) {
    if (code < 0x8000) return milliseconds(code);
    return milliseconds(std::int64_t{(code & 0xfff) | 0x1000} << (((code >> 12) & 7) + 3));
}

std::uint64_t mix(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
}

// Steps over the header, to what is behind. Answers whether one of its options is a router alert for MLD; nothing, if
// it is broken.
std::optional<bool> skip_hop_by_hop(NetworkPacket& packet) {
    if (packet.payload_bytes < 8) return std::nullopt;
    const std::uint8_t* const header = packet.payload;
    const std::uint32_t bytes = (header[1] + 1u) * 8;
    if (bytes > packet.payload_bytes) return std::nullopt;
    bool alert = false;
    for (std::uint32_t at = 2; at < bytes;) {
        // Type, length, contents; Pad1 is a type alone (RFC 8200, 4.2).
        if (header[at] == option_pad1) {
            ++at;
            continue;
        }
        if (bytes - at < 2 || header[at + 1] > bytes - at - 2) return std::nullopt;
        const std::uint32_t length = header[at + 1];
        if (header[at] == option_router_alert && length == 2 && wire::load16(header + at + 2) == 0) alert = true;
        at += 2 + length;
    }
    packet.protocol = header[0];
    packet.payload += bytes;
    packet.payload_bytes -= bytes;
    return alert;
}

// `message` is the ICMPv6 message, its checksum seen.
std::optional<ListenerQuery> parse_query(std::span<const std::uint8_t> message, const IpAddress& source,
                                         std::uint8_t hop_limit) {
    if (hop_limit != mld_hop_limit || !is_link_local(source) || message.size() < query_bytes_v1)
        return std::nullopt;
    ListenerQuery out;
    out.is_v1 = message.size() == query_bytes_v1;
    out.group = ip_at(message.data() + 8, true);
    if (!is_unspecified(out.group) && !is_multicast(out.group)) return std::nullopt;
    const std::uint16_t code = wire::load16(message.data() + 4);
    if (out.is_v1) {
        out.response_delay_max = milliseconds(code);
        return out;
    }
    if (message.size() < query_bytes_v2 ||
        message.size() - query_bytes_v2 < wire::load16(message.data() + 26) * std::size_t{16})
        return std::nullopt;
    out.response_delay_max = delay_of(code);
    out.robustness = message[24] & 7;
    return out;
}

}  // namespace

// ---- messages ----

void write_router_alert(std::uint8_t* at) {
    constexpr std::uint8_t header[router_alert_bytes] = {protocol_icmpv6,       0, option_router_alert, 2, 0, 0,
                                                         /* PadN of none: */ 1, 0};
    std::memcpy(at, header, sizeof header);
}

std::optional<ListenerQuery> read_listener_query(NetworkPacket packet, InterfaceCounters& counters) {
    const auto refuse = [](std::uint64_t& counter) {
        ++counter;
        return std::nullopt;
    };
    const std::optional<bool> alert = skip_hop_by_hop(packet);
    if (!alert) return refuse(counters.rx_malformed_frames);
    if (packet.protocol != protocol_icmpv6) return refuse(counters.rx_other_protocol_frames);
    if (packet.payload_bytes < icmp_bytes) return refuse(counters.rx_malformed_frames);
    if (packet.payload[0] != mld_query) return refuse(counters.rx_other_protocol_frames);
    if (!icmp_checksum_holds(packet)) return refuse(counters.rx_bad_checksum_frames);
    const std::optional<ListenerQuery> query =
        parse_query({packet.payload, packet.payload_bytes}, ip_at(packet.source, true), packet.hop_limit);
    if (!*alert || !query) return refuse(counters.rx_malformed_frames);
    ++counters.rx_listener_query_frames;
    return query;
}

std::uint32_t write_listener_report(ListenerReport report, const IpAddress& group, std::uint8_t* at) {
    std::memset(at, 0, listener_report_bytes_max);
    const bool is_v1 = report == ListenerReport::v1;
    at[0] = is_v1 ? report_v1 : report_v2;
    if (is_v1) {
        std::copy(group.bytes.begin(), group.bytes.end(), at + 8);
        return 24;
    }
    wire::store16(at + 6, 1);  // record
    at[8] = report == ListenerReport::v2_change ? record_change_to_exclude : record_is_exclude;
    std::copy(group.bytes.begin(), group.bytes.end(), at + 12);
    return 28;
}

// ---- state ----

MulticastListener::MulticastListener(const MacAddress& mac) : random_(0), robustness_(robustness_default) {
    for (const std::uint8_t byte : mac) random_ = random_ << 8 | byte;
}

Duration MulticastListener::some_delay(Duration most) {
    random_ += 0x9e3779b97f4a7c15u;
    return {1 + static_cast<std::int64_t>(mix(random_) %
                                          static_cast<std::uint64_t>(std::max(most.value, std::int64_t{1})))};
}

void MulticastListener::join(Time now) {
    changes_left_ = robustness_;
    change_at_ = now;
}

void MulticastListener::handle_query(Time now, const ListenerQuery& query, const IpAddress& group) {
    if (query.is_v1) {
        // The Older Version Querier Present Timeout (RFC 3810, 9.12).
        v1_until_ = now + query_interval * robustness_ + query.response_delay_max;
    } else {
        robustness_ = query.robustness != 0 ? query.robustness : robustness_default;
    }
    if (!is_unspecified(query.group) && query.group != group) return;
    answer_at_ = std::min(answer_at_, now + some_delay(query.response_delay_max));
}

std::optional<ListenerReport> MulticastListener::poll_report(Time now) {
    const bool is_v1 = now < v1_until_;
    if (change_at_ <= now) {
        change_at_ = --changes_left_ == 0 ? time_never : now + some_delay(unsolicited_report_interval);
        return is_v1 ? ListenerReport::v1 : ListenerReport::v2_change;
    }
    if (answer_at_ <= now) {
        answer_at_ = time_never;
        return is_v1 ? ListenerReport::v1 : ListenerReport::v2_state;
    }
    return std::nullopt;
}

}  // namespace dlcp::ipstack

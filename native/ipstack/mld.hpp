// Multicast listener discovery, the listener's half: which switches that snoop must hear before a group's frames come
// here. MLDv2 (RFC 3810, now RFC 9777); MLDv1 (RFC 2710) while somebody asks so.
//
//      0    1     2 3       4 5       6 7    8 … 23   24    25   26 27    28 …
//     130  code checksum  max. delay   0     group    flags QQIC sources  …      query; MLDv1's ends at 24
//     131  code checksum      0        0     group                               report of MLDv1, to the group
//     143  code checksum      0     records  4/2, 0, 0 0, group                  report of MLDv2, to ff02::16
//
// All travel behind a router alert (RFC 2711) with hop limit 1. The only group reported is the one that an address is
// solicited at: all nodes is never reported (RFC 3810, 6).
//
// Different from the RFCs: others' reports are not heard, so ours is not left out for theirs (a switch that snoops wants
// one from each port); a change of version keeps what is due; queries for sources are answered as those for the group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/units.hpp"
#include "ipstack/counters.hpp"
#include "ipstack/network.hpp"

namespace dlcp::ipstack {

inline constexpr std::uint8_t protocol_hop_by_hop = 0;
inline constexpr std::uint8_t mld_query = 130;
inline constexpr std::uint8_t mld_hop_limit = 1;
inline constexpr std::uint32_t router_alert_bytes = 8;
inline constexpr std::uint32_t listener_report_bytes_max = 28;
inline constexpr IpAddress mld_routers_group{.bytes = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16},
                                             .bits = 128};

// ---- messages ----

// The header that carries a router alert alone, before ICMPv6: router_alert_bytes.
void write_router_alert(std::uint8_t* at);

struct ListenerQuery {
    bool is_v1 = false;
    Duration response_delay_max{0};
    IpAddress group;              // unspecified: all
    std::uint8_t robustness = 0;  // of the querier; 0: it says none
};

// Of an IPv6 packet whose payload is a hop-by-hop header. Checks all that RFC 3810, 6.2 and 8.1 ask; counts what it is,
// or why it is none.
std::optional<ListenerQuery> read_listener_query(NetworkPacket packet, InterfaceCounters& counters);

enum class ListenerReport : std::uint8_t {
    v1,
    v2_change,  // we listen from now on
    v2_state,   // we do, for somebody asked
};
// Answers the bytes written, listener_report_bytes_max at most; checksum 0.
std::uint32_t write_listener_report(ListenerReport report, const IpAddress& group, std::uint8_t* at);

// ---- state ----

// When to report one group. Delays are spread by a hash of the card's address, not drawn: one host says the same at the
// same time in each run, and no two hosts do.
class MulticastListener {
public:
    explicit MulticastListener(const MacAddress& mac);

    // From now on, or again, for a switch may be another one: reported now and, so that one may be lost, within a second.
    void join(Time now);
    void handle_query(Time now, const ListenerQuery& query, const IpAddress& group);

    Time next_deadline() const { return std::min(change_at_, answer_at_); }
    // Reports that are due, to be asked for until there is none.
    std::optional<ListenerReport> poll_report(Time now);

private:
    // More than 0, at most `most`.
    Duration some_delay(Duration most);

    std::uint64_t random_;
    unsigned robustness_;          // how often a change is said
    unsigned changes_left_ = 0;    // to be said
    Time change_at_ = time_never;  // the next of them
    Time answer_at_ = time_never;  // to a query
    Time v1_until_{0};             // a querier of MLDv1 is present
};

}  // namespace dlcp::ipstack

// What an endpoint counts. All values only grow, except the gauges named so.
#pragma once

#include <array>
#include <cstdint>

#include "engine/units.hpp"
#include "engine/wire.hpp"

namespace dlcp {

struct Counters {
    // Sent, in packets and in bytes of payload (header, tag and lower layers excluded).
    std::uint64_t data_packets_sent = 0;
    std::uint64_t data_bytes_sent = 0;    // value, including retransmitted
    std::uint64_t header_bytes_sent = 0;  // dlcp headers and tags of all packets
    std::uint64_t control_packets_sent = 0;
    std::uint64_t control_bytes_sent = 0;
    std::uint64_t repair_packets_sent = 0;
    std::uint64_t repair_bytes_sent = 0;
    std::uint64_t acked_packets = 0;
    std::uint64_t lost_packets = 0;     // declared lost by the sender
    std::uint64_t spurious_losses = 0;  // declared lost, acknowledged later
    std::uint64_t probes_sent = 0;
    std::uint64_t datagrams_shrunk = 0;  // a path stopped to carry datagrams of the size in use

    // Received.
    std::uint64_t data_packets_received = 0;  // authentic, of a live session
    std::uint64_t data_bytes_received = 0;
    std::uint64_t data_bytes_placed = 0;  // first copies: what the application gets
    std::uint64_t control_packets_received = 0;
    std::uint64_t duplicate_blocks = 0;  // a block that was there already
    std::uint64_t late_blocks = 0;       // of a message that was over already
    std::uint64_t ce_packets_received = 0;
    std::uint64_t trimmed_packets_received = 0;
    std::uint64_t held_packets = 0;  // dropped: no room for an unexpected message

    // Messages.
    std::uint64_t messages_sent = 0;  // final event send_finished
    std::uint64_t messages_received = 0;
    std::uint64_t messages_failed = 0;
    std::uint64_t abandoned_blocks = 0;  // as receiver
    std::uint64_t abandoned_bytes = 0;
    std::uint64_t abandoned_by_peer_blocks = 0;  // as sender: as the peers reported
    std::uint64_t abandoned_by_peer_bytes = 0;

    // Dropped on arrival, by reason.
    std::array<std::uint64_t, wire::parse_error_count> malformed{};  // by ParseError
    std::uint64_t foreign_job = 0;
    std::uint64_t stale_session = 0;     // names a session that this endpoint does not have, or no longer has
    std::uint64_t bad_tag = 0;           // forged or damaged
    std::uint64_t unauthenticated = 0;   // no tag though we have a key, or the reverse
    std::uint64_t no_common_cipher = 0;  // authentic hellos of peers whose ciphers this endpoint does not use
    std::uint64_t replayed = 0;          // packet number seen before, or older than the window
    std::uint64_t malformed_frames = 0;
    std::uint64_t inconsistent = 0;  // well formed, but contradicts earlier packets of the message
};

struct PeerStatistics {
    std::uint32_t rank = 0;
    bool established = false;  // gauge: the session is up
    Time last_heard{0};        // last authentic packet; gauge
    Duration silent{-1};       // since last_heard, filled in by the runtime; gauge
    Duration rtt{0};           // smoothed; gauge
    Duration rtt_min{0};
    Duration queue_delay{0};  // median one-way delay above its minimum; gauge
    Bytes window{0};          // gauge
    Bytes in_flight{0};       // gauge
    Bytes credit{0};          // what the peer says it can buffer; gauge
    std::uint16_t max_datagram_bytes = 0;
};

// What an endpoint keeps now; gauges.
struct KeptMessages {
    std::uint32_t outgoing = 0;  // not released, or the peer does not know the end yet
    std::uint32_t incoming = 0;  // the same, including waiting receives
    Bytes unexpected{0};         // charged for messages without a receive
};

struct PathStatistics {
    std::uint16_t path = 0;
    std::uint64_t packets_sent = 0;
    std::uint64_t packets_acked = 0;
    std::uint64_t packets_lost = 0;
    std::uint64_t ce_packets = 0;
    double loss_ratio = 0.0;  // recent; gauge
    Duration rtt{0};          // gauge
    bool up = true;           // gauge
};

}  // namespace dlcp

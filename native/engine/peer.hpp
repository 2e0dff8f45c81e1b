// What an endpoint keeps about one peer: its identity, the session with it if there is one, and what outlives a
// session.
//
// A plain record, changed by the parts of the endpoint. Invariant: there is a session exactly while the state is
// established.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "engine/address.hpp"
#include "engine/event.hpp"
#include "engine/handshake_state.hpp"
#include "engine/incoming_message.hpp"
#include "engine/lateness.hpp"
#include "engine/peer_states.hpp"
#include "engine/prefetch.hpp"
#include "engine/rtt_estimator.hpp"
#include "engine/session.hpp"

namespace dlcp {

using OutgoingList = IntrusiveList<OutgoingMessage, &OutgoingMessage::all_link>;
using IncomingList = IntrusiveList<IncomingMessage, &IncomingMessage::posted_link>;

struct alignas(cache_line_bytes) Peer {
    // A host may leave what has come unread for so long; its buffer is for what comes in that time.
    static constexpr Duration unread = milliseconds(10);

    // Identity. `index`: the place in the endpoint's table, 0 to max_peers - 1. `learned`: the peer spoke first, and
    // `address` is the source of its hello, not an argument of connect(). The handshake and connect() change the
    // address.
    std::uint32_t index = 0;
    std::uint32_t rank = 0;
    dlcp_address address{};
    bool learned = false;

    PeerState state;
    HandshakeState handshake;
    std::optional<Session> session;
    // How the peer ended the last session (peer_closed, peer_gone); none: it has not, or there is another since.
    CommandError ended_by = CommandError::none;
    // Everything outstanding is being failed: an existing session accepts no new work.
    bool failing = false;

    // Datagrams and blocks (payload of a full data packet) to this peer, in bytes: this endpoint's own limits while
    // connecting. Changed by the handshake, and lowered when the path has stopped to carry as much (path_size.cpp).
    std::uint16_t datagram_bytes = 0;
    std::uint16_t block_bytes = 0;
    // The blocks before they were last lowered in this session; else as `block_bytes`.
    std::uint16_t former_block_bytes = 0;

    // Liveness: when an authentic packet last came, and how many packets the keep-alive timer has
    // asked for since.
    Time last_heard{0};
    std::uint32_t keepalive_tries = 0;
    // The peer owes something: an answer, a message, a hello; and since when without interruption.
    bool waiting = false;
    Time waiting_since{0};
    // When to probe the peer's liveness, or, while connecting, to give up; time_never: neither.
    Time keepalive_at = time_never;

    // What is known about the network path to the peer, which outlives a session (changed by recovery).
    RttEstimator rtt;
    // How much later than a packet of another lane a packet may arrive without being lost (RFC 8985 section 6.2 step
    // 4).
    Duration reorder_window{0};
    // And than the packet that ended the first pass of a message that may lose.
    Duration pass_window{0};
    // The same within a lane, in packet numbers (RFC 9002 section 6.1.1).
    std::uint64_t lane_tolerance = 3;
    // How long after a packet the acknowledgement came of one that had been declared overdue.
    Lateness late_answers;
    // Share of packets lost, a moving average in 2^-16.
    std::int32_t loss_share = 0;
    // Length in bytes of the last hello received.
    std::uint16_t heard_hello_bytes = 0;

    // Messages to the peer that are not over, in order of the commands.
    OutgoingList outgoing;
    // Receives for this peer, and messages from it, that are not over.
    IncomingList posted;
    // Receives for this peer that are not over; 0 to max_messages_per_peer.
    std::uint32_t receives = 0;

    // Membership in lists of the parts, so that each holds the peer once.
    bool control_queued = false;       // SharedState::control_queue
    std::uint8_t ready_classes = 0;    // bit c: SharedState::ready[c]
    bool touched = false;              // Arrivals: the current batch held a packet from it
    bool sends = false;                // ReceiverCredit: it sent data recently
    Time last_data_at{INT64_MIN / 2};  // when data last came: decides how long it counts as one that sends

    // What may be in flight at once where `bytes` may come to wait there: on a long path the rest is on its way. A
    // handshake's guess makes no path long.
    Bytes stretched(Bytes bytes) const {
        if (!rtt.measured()) return bytes;
        return bytes * static_cast<std::uint64_t>(std::max<std::int64_t>(1, rtt.min().value / unread.value));
    }

    // The session is up and accepts work.
    bool up() const { return session.has_value() && !failing; }
    // Packets to the peer carry tags: there is a key, and its address is on a network.
    bool protects() const { return session->keys.present() && !is_trusted(address); }
};

}  // namespace dlcp

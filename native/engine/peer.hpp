// What an endpoint keeps about one peer: who it is, the session with it if there is one, and what outlives a session.
//
// A record, changed by the parts of the endpoint; it decides nothing itself. Invariant: there is a session exactly while
// the state is established.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/address.hpp"
#include "engine/handshake_state.hpp"
#include "engine/incoming_message.hpp"
#include "engine/rtt_estimator.hpp"
#include "engine/session.hpp"

namespace dlcp {

using OutgoingList = IntrusiveList<OutgoingMessage, &OutgoingMessage::all_link>;
using IncomingList = IntrusiveList<IncomingMessage, &IncomingMessage::posted_link>;

struct Peer {
    enum class State : std::uint8_t {
        idle,        // nothing wanted: no packets
        connecting,  // saying hello
        established,
        gone,  // closed by the peer; its hello or a command brings it back
    };

    // Identity. `index`: its place in the endpoint's table, 0 to max_peers - 1. `learned`: it spoke first, and `address`
    // is where its hello came from, not what connect() was given. handshake and connect() change the address.
    std::uint32_t index = 0;
    std::uint32_t rank = 0;
    dlcp_address address{};
    bool learned = false;

    State state = State::idle;
    HandshakeState handshake;
    std::optional<Session> session;
    // Everything outstanding is being failed: the session, if there still is one, takes no new work.
    bool failing = false;

    // Datagrams and blocks (payload of a full data packet) to this peer, in bytes: fixed while there is a session, this
    // endpoint's own limits while connecting. handshake.
    std::uint16_t datagram_bytes = 0;
    std::uint16_t block_bytes = 0;

    // Liveness (recovery). When an authentic packet last came, and packets asked for since then by the keep-alive timer.
    Time last_heard{0};
    std::uint32_t keepalive_tries = 0;
    // Something is owed: an answer, a message, a hello; and since when without interruption.
    bool waiting = false;
    Time waiting_since{0};
    // When to ask whether the peer is there, or, while connecting, to give up; time_never: neither.
    Time keepalive_at = time_never;

    // What is known of the network on the way there, which outlives a session (recovery).
    RttEstimator rtt;
    // By how long packets of different lanes may overtake each other (RFC 8985 section 6.2 step 4).
    Duration reorder_window{0};
    // By how many packet numbers packets of one lane may (RFC 9002 section 6.1.1).
    std::uint64_t lane_tolerance = 3;
    // Share of packets lost, a moving average in 2^-16.
    std::int32_t loss_share = 0;
    // Length in bytes of the last hello that came.
    std::uint16_t heard_hello_bytes = 0;

    // Messages to the peer that are not over, in order of the commands.
    OutgoingList outgoing;
    // Receives for this peer, and messages from it, that are not over.
    IncomingList posted;
    // Receives for this peer that are not over; 0 to max_messages_per_peer.
    std::uint32_t receives = 0;

    // Membership in the endpoint's lists, so that each holds the peer once.
    bool control_queued = false;       // control_queue_
    std::uint8_t ready_classes = 0;    // bit c: ready_[c]
    bool touched = false;              // touched_: a packet of the present batch was its
    bool sends = false;                // senders_
    Time last_data_at{INT64_MIN / 2};  // when data last came: how long it stays among senders_

    // The session is up and takes work.
    bool up() const { return session.has_value() && !failing; }
    // Packets to the peer carry tags: there is a key, and they leave by a network.
    bool protects() const { return session->keys.present() && !is_trusted(address); }
};

}  // namespace dlcp

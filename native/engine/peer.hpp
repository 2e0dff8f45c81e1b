// Everything an endpoint keeps about one peer: the session, what is on its way there, what is coming from there.
//
// A record, changed by the parts of the endpoint (handshake, transmit, arrival, control, recovery); it decides nothing
// itself. Fields of one concern stand together; each says who changes it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/address.hpp"
#include "engine/arrival_delays.hpp"
#include "engine/congestion.hpp"
#include "engine/event.hpp"
#include "engine/id_ring.hpp"
#include "engine/incoming_message.hpp"
#include "engine/outgoing_message.hpp"
#include "engine/pacer.hpp"
#include "engine/packet.h"
#include "engine/packet_window.hpp"
#include "engine/path_set.hpp"
#include "engine/rtt_estimator.hpp"
#include "engine/sent_ring.hpp"
#include "engine/session_keys.hpp"
#include "engine/wire.hpp"

namespace dlcp {

using SendQueue = IntrusiveList<OutgoingMessage, &OutgoingMessage::queue_link>;
using StartedList = IntrusiveList<OutgoingMessage, &OutgoingMessage::started_link>;
using OutgoingList = IntrusiveList<OutgoingMessage, &OutgoingMessage::all_link>;
using IncomingList = IntrusiveList<IncomingMessage, &IncomingMessage::posted_link>;

// What the receiver knows of one message id of the peer's.
struct IncomingEntry {
    enum class State : std::uint8_t {
        unknown,    // no packet yet
        active,     // `slot` is receiving
        delivered,  // over, every block was here, or nobody cares for its outcome
        abandoned,  // over, `slot` holds which blocks were abandoned
        refused,    // will not be taken; `reason`
        held,       // no room: told to wait
    };
    State state = State::unknown;
    std::uint8_t reason = 0;
    bool answer_queued = false;  // its complete/outcome/refuse/hold waits for the next control packet
    std::uint32_t slot = UINT32_MAX;
};

struct Peer {
    enum class State : std::uint8_t {
        idle,        // nothing wanted: no packets
        connecting,  // saying hello
        established,
        gone,  // closed by the peer; its hello or a command brings it back
    };

    std::uint32_t index = 0;
    std::uint32_t rank = 0;
    dlcp_address address{};
    bool learned = false;  // it spoke first: the address is where its hello came from

    // Session (handshake).
    State state = State::idle;
    std::uint64_t own_session = 0;    // fresh per handshake
    std::uint64_t peer_session = 0;   // as last heard; proven once established
    dlcp_address answer_address{};    // where the hello to be answered came from
    std::uint64_t candidate_own = 0;  // answering a peer that seems to have restarted; 0: none
    std::uint64_t candidate_peer = 0;
    SessionKeys keys;
    // The private channel that a hello of the peer's came out of, and the session it named: what else comes out of it
    // for that session is the same process's, and needs no tag.
    dlcp_address channel{};
    std::uint64_t channel_session = 0;
    std::uint64_t hello_number = 0;  // packet number of the next hello under own_session
    std::uint64_t candidate_hello_number = 0;
    std::uint32_t hello_attempts = 0;
    Time hello_at = time_never;  // when to say hello again
    bool hello_due = false;      // say hello in the next packet
    Time hello_sent_at{0};
    bool answer_hello = false;            // owe the peer a hello
    bool answer_candidate = false;        // … about the candidate session
    std::uint16_t heard_hello_bytes = 0;  // length of the peer's last hello
    std::uint16_t datagram_bytes = 0;     // what the path carries
    std::uint16_t block_bytes = 0;

    // Packets to the peer carry tags: there is a key, and they leave by a network.
    bool protects() const { return keys.present() && !is_trusted(address); }

    // Liveness (recovery).
    Time last_heard{0};     // last authentic packet
    Time waiting_since{0};  // since when an answer is owed without interruption
    bool waiting = false;
    Time keepalive_at = time_never;
    std::uint32_t keepalive_tries = 0;  // since the peer was last heard

    // Sending (transmit, recovery).
    SentRing sent;
    std::vector<std::uint64_t> lane_acked;     // per (class, path): largest acknowledged packet number + 1
    std::uint64_t largest_acked = 0;           // + 1; 0: none
    Time newest_acked_sent_at{INT64_MIN / 2};  // the latest sending of a packet that is acknowledged
    Duration reorder_window{0};        // by which lanes may overtake each other (RFC 8985 section 6.2 step 4)
    std::uint64_t lane_tolerance = 3;  // packet numbers by which a lane may reorder (RFC 9002 section 6.1.1)
    RttEstimator rtt;
    Duration queue_delay{0};  // as the peer last reported
    PathSet paths;
    std::unique_ptr<CongestionControl> congestion;
    Pacer pacer;
    std::uint32_t awaiting = 0;   // tracked data packets not declared lost
    Bytes in_flight{0};           // datagram bytes of tracked data packets not declared lost
    Bytes lost_unreported{0};     // declared lost since congestion control last heard
    std::int32_t loss_share = 0;  // of the packets of late, in 2^-16
    Bytes sent_total{0};
    Bytes granted{0};
    Bytes credit{0};              // what the peer can buffer
    std::uint64_t round_end = 0;  // acknowledging this number or a later one ends the round
    std::uint16_t run_path = 0;
    std::uint16_t run_left = 0;           // packets left in the present run
    std::uint64_t unrequested_bytes = 0;  // sent since the last ack_request
    std::uint32_t timeouts = 0;           // probe timeouts in a row
    Time last_progress{0};                // last acknowledgement of something new, or last sending after idleness
    Time probe_at = time_never;
    Time loss_at = time_never;
    Time pace_at = time_never;
    std::array<SendQueue, wire::traffic_classes> queues;
    std::uint8_t ready_classes = 0;  // bit c: in the endpoint's ready queue of class c
    StartedList started;
    OutgoingList outgoing;
    IdRing<std::uint32_t> outgoing_ids;  // wire id → slot, UINT32_MAX once over
    bool ids_exhausted = false;          // told that the oldest message holds up new ones
    std::uint64_t backlog_told = 0;
    std::uint32_t floor_told = 1;  // first wire id that is not over, as the peer last heard

    // Receiving (arrival).
    PacketWindow window;
    ArrivalDelays arrival_delays;
    IdRing<IncomingEntry> incoming;  // by the peer's message id; base: the peer's floor
    std::uint32_t receives = 0;      // receives for this peer that are not over
    IncomingList posted;             // receives for this peer and messages from it that are not over
    std::uint32_t unacked_packets = 0;
    std::uint32_t ce_received = 0;
    Time largest_arrived_at{0};
    Time last_data_at{INT64_MIN / 2};
    bool sends = false;  // one of Endpoint::Impl::senders_
    Time ack_at = time_never;
    bool ack_now = false;
    bool ack_full = false;   // cover the whole window: a probe asked
    std::uint32_t held = 0;  // messages told to wait: entries in state held
    bool touched = false;    // in the batch being handled

    // Owed in the next control packets (control).
    bool control_queued = false;
    bool probe_due = false;
    bool grant_due = false;
    bool demand_due = false;
    bool close_due = false;
    bool floor_due = false;
    std::vector<std::uint32_t> complete_ids;
    std::vector<std::uint32_t> outcome_ids;
    std::uint32_t outcome_word = 0;  // next word of outcome_ids.front() if it did not fit one packet
    std::vector<std::uint32_t> refuse_ids;
    std::vector<std::uint32_t> hold_ids;
    std::vector<std::uint32_t> proceed_ids;
    std::vector<std::uint32_t> cancel_ids;
    std::vector<std::uint64_t> trimmed_numbers;
};

}  // namespace dlcp

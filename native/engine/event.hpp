// What an endpoint reports to its owner, and how commands fail.
#pragma once

#include <cstdint>

#include "engine/units.hpp"

namespace dlcp {

// A peer of one endpoint. Never reused; a peer that restarts or comes back keeps its id.
struct PeerId {
    std::uint32_t value = UINT32_MAX;
    friend bool operator==(PeerId, PeerId) = default;
};
// As the peer of a receive: from any peer, first come first served.
inline constexpr PeerId any_peer{UINT32_MAX};

// A message of one endpoint, in either direction. Never reused until the 32-bit generation wraps.
struct MessageId {
    std::uint32_t slot = UINT32_MAX;
    std::uint32_t generation = 0;
    friend bool operator==(MessageId, MessageId) = default;
};

enum class Delivery : std::uint8_t {
    reliable,  // every block arrives
    bounded,   // droppable blocks may be abandoned, up to a fraction of the bytes
    deadline,  // bounded; after a time it completes with what is there, except that critical blocks are awaited
};

// Why a command or a message failed. The first group is the caller's mistake, found before the command had any effect.
enum class CommandError : std::uint8_t {
    none,
    unknown_peer,
    unknown_message,
    message_not_over,      // release or outcome before the final event
    message_over,          // cancel after the final event
    bad_class,             // traffic_class > 6
    bad_loss_ratio,        // outside [0, 1)
    bad_deadline,          // negative, or absent with Delivery::deadline
    bad_importance_count,  // not one entry per block
    bad_unit,              // unit_bytes is 0, or above most_unit_bytes
    duplicate_rank,        // connect to a rank that is a peer already, at another address
    own_rank,
    too_many_peers,
    too_many_messages,
    bad_release,  // release_blocks of a message that is not gated, past its end, or before the session is up
    no_key,       // advance_key_epoch without a job key
    closed,
    // Of messages that were under way:
    peer_timeout,       // nothing heard from the peer for EndpointConfig::peer_timeout
    peer_restarted,     // the peer came back as another process
    peer_closed,        // the peer said goodbye
    cancelled,          // by this side
    peer_cancelled,     // by the other side
    receive_too_small,  // the message is longer than the receive buffer
    refused,            // the peer's receive was too small, or for another length
    wrong_size,         // the message has another length than an exact receive
    peer_gone,          // the peer's process ended without a goodbye: its private channel says so
};
const char* name(CommandError error);

template <class T>
struct CommandResult {
    T value{};
    CommandError error = CommandError::none;
    explicit operator bool() const { return error == CommandError::none; }
};

enum class EventKind : std::uint8_t {
    peer_established,
    peer_down,  // error says why; every message with it has had its final event before this one
    send_finished,
    send_failed,
    receive_finished,
    receive_failed,
    path_down,  // a path to the peer is avoided: value is the path id
    path_up,
    bound_reached,  // value is a Bound
    // A message without a receive has begun to arrive; value is its length in bytes. Only with
    // EndpointConfig::announce_unexpected.
    message_unexpected,
};

enum class Bound : std::uint8_t {
    peers,             // a hello from a new peer was dropped
    messages,          // a message must wait, here or at the peer: the oldest open one lies too far back
    unexpected_bytes,  // a message without a receive was put on hold
};

struct Event {
    EventKind kind = EventKind::peer_established;
    CommandError error = CommandError::none;
    PeerId peer;
    MessageId message;        // of a final event
    std::uint64_t tag = 0;    // the message's
    std::uint32_t value = 0;  // path id or Bound
    Duration waited{0};       // since the command (final events) or since the peer was last heard (peer_down)
};
const char* name(EventKind kind);

}  // namespace dlcp

// The protocol engine: one endpoint, which exchanges messages with peers.
//
// It opens no socket, starts no thread, reads no clock, draws no randomness but from the seed given at birth,
// and allocates nothing per packet once its tables have grown to the load. A driver owns it and calls, from one
// thread at a time:
//
//   commands        connect, send, receive, cancel, release, …      at any time; errors are returned, not thrown
//   handle_packets  a batch that arrived                            then poll_transmit and poll_event
//   handle_timer    when next_deadline() has been reached           then poll_transmit and poll_event
//   poll_transmit   packets to send now                             repeat until it returns 0
//   poll_event      what happened                                   repeat until it returns false
//   next_deadline   when to call handle_timer or poll_transmit next; time_never if nothing is due
//
// Time never goes back: every call takes `now`, at least as late as the call before. Same seed and same calls
// give the same packets, byte for byte.
//
// Memory: a message's payload or receive buffer belongs to the caller and must stay until the message's final
// event (send_finished/send_failed, receive_finished/receive_failed). The message itself, and with it the
// outcome per block, stays until release().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/config.hpp"
#include "engine/counters.hpp"
#include "engine/event.hpp"
#include "engine/packet.h"
#include "engine/units.hpp"

namespace dlcp {

// What to send. Fields checked by Endpoint::send; a bad one is named by the CommandError.
struct SendCommand {
    PeerId peer;
    std::uint64_t tag = 0;                  // the application's name for this message; pairs it with a receive
    const std::uint8_t* payload = nullptr;  // nullptr with message_bytes > 0: virtual payload, lengths only
    std::uint32_t message_bytes = 0;
    std::uint8_t traffic_class = 0;  // 0..6, higher leaves first
    Delivery delivery = Delivery::reliable;
    double loss_ratio = 0.0;  // bounded, deadline: fraction of bytes that may be abandoned, [0, 1)
    Duration deadline{0};     // deadline: from the receiver's first packet of this message
    // bounded: so long after the command the network counts as short of capacity, and droppable blocks that have not
    // left yet are given up unsent, the least important, as far as the budget goes. 0: at once. Negative: never.
    Duration patience{-1};
    // Per block, 255 critical, else droppable and how much it matters. Empty: all critical. Read during the
    // call only. Its length must be the block count: block_count(message_bytes, block_bytes(peer)).
    std::span<const std::uint8_t> importance;
    // A block leaves only once release_blocks() has named it: its bytes are still being computed.
    bool gated = false;
};

// Takes the blocks of a receive as they arrive, in place of a buffer.
struct BlockSink {
    // Called once per block, at the first arrival, inside handle_packets, or inside receive for blocks that came before
    // it. `payload` is valid during the call; nullptr: virtual. May call release_blocks and getters, nothing else.
    void (*place)(void* context, std::uint64_t token, Time now, std::uint32_t offset_bytes,
                  const std::uint8_t* payload, std::uint32_t payload_bytes) = nullptr;
    void* context = nullptr;
    std::uint64_t token = 0;  // the caller's
};

struct ReceiveCommand {
    PeerId peer = any_peer;
    std::uint64_t tag = 0;
    std::uint8_t* buffer = nullptr;  // nullptr with capacity_bytes > 0: virtual, bytes are counted, not kept
    std::uint32_t capacity_bytes = 0;
    BlockSink sink;      // with `place` set, `buffer` is not used
    bool exact = false;  // a message of another length than capacity_bytes fails with wrong_size, before any block
};

// How one message ended. Bits are set per block in the bitmaps; sums are in bytes of payload.
struct MessageOutcome {
    std::uint32_t message_bytes = 0;
    std::uint16_t block_bytes = 0;
    std::uint32_t blocks = 0;
    std::uint32_t abandoned_blocks = 0;
    std::uint32_t delivered_bytes = 0;
    std::uint32_t abandoned_bytes = 0;
    std::uint32_t retransmitted_bytes = 0;  // sender only
    // Bit i of word i/64: block i was abandoned. Empty when abandoned_blocks is 0. Valid until release().
    std::span<const std::uint64_t> abandoned;
};

class Endpoint {
public:
    // `config` must have passed validate(). `seed` feeds session ids and path choice; a driver on a
    // real network takes it from the system's entropy, since session ids must not repeat.
    Endpoint(const EndpointConfig& config, std::uint64_t seed, Time now);
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    // Names a peer and starts the handshake. `path` MTUs are found during it.
    CommandResult<PeerId> connect(Time now, std::uint32_t rank, const dlcp_address& address);
    // Tells the peer and fails everything outstanding with it.
    CommandError disconnect(Time now, PeerId peer);
    std::optional<PeerId> find_peer(std::uint32_t rank) const;
    std::uint32_t rank_of(PeerId peer) const;
    const dlcp_address* address_of(PeerId peer) const;
    bool established(PeerId peer) const;
    // Payload bytes of a full block to this peer. Fixed once the peer is established; before that, the value it
    // would have by this endpoint's own limits.
    std::uint16_t block_bytes(PeerId peer) const;

    CommandResult<MessageId> send(Time now, const SendCommand& command);
    CommandResult<MessageId> receive(Time now, const ReceiveCommand& command);
    // Lets `count` blocks of a gated message leave, from block `first` on. The peer must be established, so that blocks
    // are cut for good. Naming a block again changes nothing; a message that is over is none of the caller's mistakes.
    CommandError release_blocks(Time now, MessageId message, std::uint32_t first, std::uint32_t count);
    // Asks an established peer for a sign of life: PeerStatistics::last_heard tells when it came.
    void probe(PeerId peer);
    // Gives up a message that is not over: the peer is told, the final event has error `cancelled`.
    CommandError cancel(Time now, MessageId message);
    // Drops what came and nobody has asked for, under tags that agree with `tag` in the bits of `mask`; returns how many
    // messages. Senders of what has not come whole are told as if a receive had been cancelled. One that is on hold is
    // not here: it is announced again when it comes.
    std::size_t discard_unexpected(Time now, std::uint64_t tag, std::uint64_t mask);
    // Forgets a message that is over. Its id is invalid afterwards.
    CommandError release(MessageId message);
    // What became of a message that is over.
    CommandResult<MessageOutcome> outcome(MessageId message) const;
    // Signs with the next key epoch from now on.
    CommandError advance_key_epoch();
    // Asks every peer to be told that this endpoint leaves, and fails what is outstanding.
    void close(Time now);

    void handle_packets(Time now, std::span<const dlcp_packet> packets);
    void handle_timer(Time now);
    // Fills slots whose `head` the driver has set. Returns how many; repeat until 0.
    std::size_t poll_transmit(Time now, std::span<dlcp_packet> slots);
    // False: poll_transmit would return 0.
    bool may_transmit() const;
    bool poll_event(Event& out);
    Time next_deadline() const;

    const Counters& counters() const;
    // Slow; for tests and reports.
    KeptMessages kept_messages() const;
    PeerStatistics peer_statistics(PeerId peer) const;
    // One entry per path to this peer; returns how many there are.
    std::size_t path_statistics(PeerId peer, std::span<PathStatistics> out) const;
    // Checks every invariant that can be stated about the state now. Empty string: all hold. Slow; for tests.
    std::string check_invariants() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace dlcp

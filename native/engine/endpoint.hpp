// The protocol engine: one endpoint, which exchanges messages with peers.
//
// It opens no socket, starts no thread, reads no clock, draws randomness only from the seed given at construction, and
// allocates nothing per packet once its tables have grown to the load. A runtime owns it and calls, from one thread at
// a time:
//
//   commands        connect, send, receive, cancel, release, …      at any time; errors are returned, not thrown
//   handle_packets  a batch that arrived                            then poll_transmit and poll_event
//   handle_timer    when next_deadline() has been reached           then poll_transmit and poll_event
//   poll_transmit   packets to send now                             repeat until it returns 0
//   poll_event      what happened                                   repeat until it returns false
//   next_deadline   when to call handle_timer or poll_transmit next; time_never if nothing is due
//
// Time never goes back: every call takes `now`, at least as late as in the call before. The same seed and the same
// calls give the same packets, byte for byte.
//
// Memory: a message's payload or receive buffer belongs to the caller and must stay until the message's final
// event (send_finished/send_failed, receive_finished/receive_failed). The message itself, and with it the
// outcome per block, stays until release().
//
// The only callback is a receive's BlockSink (message_command.hpp); everything else is queued as an event.
//
// Inside, a state that is shared (shared_state.hpp) and parts that work on it. Each part is a class with a header of its
// own, and knows only parts above it in this list:
//
//   Liveness        whether a peer owes an answer, and when to ask for it
//   ReceiverCredit  what senders are allowed: shares of the buffer, turns
//   Pieces          data packets that are larger than their path carries
//   Outgoing        messages to peers
//   Incoming        messages from peers and the receives for them, which Matching brings together
//   Recovery        acknowledgements, losses, silence
//   Sessions        handshakes: how sessions begin, and how they end
//   ControlWriter   control packets out
//   Arrivals        packets in, and what their frames do
//   DataWriter      runs of data packets out
//
// The endpoint itself passes commands to the parts, and has the timers (timers.cpp), the invariants (invariants.cpp), and
// memory asked for ahead of a call (foresight.cpp).
//
// Invariant: a part that changes what a peer may send calls SharedState::refresh(peer) or queues it; a part that changes
// a time calls SharedState::arm(peer).
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "engine/arrivals.hpp"
#include "engine/config.hpp"
#include "engine/control_writer.hpp"
#include "engine/counters.hpp"
#include "engine/data_writer.hpp"
#include "engine/event.hpp"
#include "engine/incoming.hpp"
#include "engine/liveness.hpp"
#include "engine/message_command.hpp"
#include "engine/outgoing.hpp"
#include "engine/packet.h"
#include "engine/pieces.hpp"
#include "engine/prefetch.hpp"
#include "engine/receiver_credit.hpp"
#include "engine/recovery.hpp"
#include "engine/sessions.hpp"
#include "engine/shared_state.hpp"
#include "engine/units.hpp"

namespace dlcp {

class alignas(cache_line_bytes) Endpoint {
public:
    // `config` must have passed validate(). `seed` feeds session ids and path choice; a driver on a
    // real network takes it from the system's entropy, since session ids must not repeat.
    Endpoint(const EndpointConfig& config, std::uint64_t seed, Time now);
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    // Names a peer and starts the handshake. `path` MTUs are found during it.
    CommandResult<PeerId> connect(Time now, std::uint32_t rank, const dlcp_address& address);
    // Notifies the peer, and fails everything outstanding with it.
    CommandError disconnect(Time now, PeerId peer);
    std::optional<PeerId> find_peer(std::uint32_t rank) const;
    std::uint32_t rank_of(PeerId peer) const;
    const dlcp_address* address_of(PeerId peer) const;
    // How the peer left: it said goodbye, or its process ended; none: neither, or a session has been established since.
    CommandError ended_by(PeerId peer) const;
    bool established(PeerId peer) const;
    // Payload bytes of a full block of the next message to this peer. Before the peer is established, the value that
    // this endpoint's own limits would give. It shrinks if the path stops to carry so much; messages keep the blocks that
    // they have, and a send whose importance was counted just before is accepted.
    std::uint16_t block_bytes(PeerId peer, std::uint16_t unit_bytes = 1) const;
    // Whether a send's importance has as many entries as the message has blocks.
    bool importance_fits(const SendCommand& command) const;
    // The block of a message, final once its peer is established; 0: no such message.
    std::uint16_t block_bytes(MessageId message) const;

    CommandResult<MessageId> send(Time now, const SendCommand& command);
    CommandResult<MessageId> receive(Time now, const ReceiveCommand& command);
    // As receive, but only of a message that has begun to arrive; unknown_message: none has.
    CommandResult<MessageId> claim(Time now, const ReceiveCommand& command);
    // Lets `count` blocks of a gated message leave, from block `first` on. The peer must be established, so that block
    // sizes are final. Naming a block again changes nothing. For a message that is over the call does nothing, and is
    // no error.
    CommandError release_blocks(Time now, MessageId message, std::uint32_t first, std::uint32_t count);
    // Asks an established peer for a sign of life: PeerStatistics::last_heard shows when it came.
    void probe(PeerId peer);
    // Gives up a message that is not over: the peer is notified, and the final event has error `cancelled`.
    CommandError cancel(Time now, MessageId message);
    // Drops messages without a receive whose tags are unwanted; returns how many. Senders of
    // incomplete ones are answered as if a receive had been cancelled. Messages on hold are not dropped: each is
    // announced again when it arrives.
    std::size_t discard_unexpected(Time now, const std::function<bool(std::uint64_t tag)>& unwanted);
    // Frees a message that is over. Its id is invalid afterwards.
    CommandError release(MessageId message);
    // What became of a message that is over.
    CommandResult<MessageOutcome> outcome(MessageId message) const;
    // Signs with the next key epoch from now on.
    CommandError advance_key_epoch();
    // Notifies every peer that this endpoint leaves, and fails what is outstanding.
    void close(Time now);

    void handle_packets(Time now, std::span<const dlcp_packet> packets);
    void handle_timer(Time now);
    // Fills slots whose `head` the driver has set. Returns how many; repeat until 0.
    std::size_t poll_transmit(Time now, std::span<dlcp_packet> slots);
    // False: poll_transmit would return 0.
    bool may_transmit() const {
        return !shared_.control_queue.empty() || shared_.ready_classes != 0 || pieces_.pending();
    }
    bool poll_event(Event& out);
    Time next_deadline() const;
    // How long what arrives from now on may wait in the driver.
    Duration nap(Time now) const { return incoming_.nap(now); }
    // Packets of messages wait to leave, if only for a window. Time grows with the number of peers.
    bool has_queued() const;

    // A call to come: of handle_packets() with a packet of this header, or of poll_transmit() (nullptr). foresee()
    // brings the memory of such calls into the cache. It changes nothing, and may be left out (foresight.cpp).
    struct Foresight {
        const Endpoint* endpoint;
        const std::uint8_t* head;
        const Peer* peer;     // the call's, once found
        wire::Glance glance;  // at the header, once read
    };
    static void foresee(std::span<Foresight> calls);

    const Counters& counters() const { return shared_.counters; }
    // Slow; for tests and reports.
    KeptMessages kept_messages() const;
    PeerStatistics peer_statistics(PeerId peer) const;
    // One entry per path to this peer; returns how many there are.
    std::size_t path_statistics(PeerId peer, std::span<PathStatistics> out) const;
    // Checks every invariant that can be stated about the present state. Empty string: all hold. Slow; for tests.
    std::string check_invariants() const;

private:
    // timers.cpp
    void fire(Time now, Peer& peer);
    void fire_session(Time now, Peer& peer);

    // foresight.cpp
    void foresee_own(bool arrival) const;
    void foresee_tables(bool arrival) const;
    void foresee_peer(Foresight& call) const;
    static void foresee_session(Foresight& call);
    void foresee_places(Foresight& call) const;
    void foresee_message(Foresight& call) const;
    void foresee_block(const Foresight& call) const;
    static const SendQueue& queue_of(const Foresight& call);
    // The highest class that may have work; only if one has.
    std::uint32_t next_class() const {
        return static_cast<std::uint32_t>(std::bit_width(std::uint32_t{shared_.ready_classes})) - 1;
    }

    SharedState shared_;
    Liveness liveness_{shared_};
    ReceiverCredit credit_{shared_};
    Pieces pieces_{shared_};
    Outgoing outgoing_{shared_, liveness_};
    Incoming incoming_{shared_, liveness_, credit_};
    Recovery recovery_{shared_, liveness_, outgoing_, pieces_, credit_};
    Sessions sessions_{shared_, liveness_, outgoing_, incoming_, pieces_, credit_};
    ControlWriter control_{shared_, recovery_, sessions_, credit_};
    Arrivals arrivals_{shared_, liveness_, outgoing_, incoming_, credit_, recovery_, sessions_};
    DataWriter data_{shared_, liveness_, outgoing_, pieces_, credit_};
};

}  // namespace dlcp

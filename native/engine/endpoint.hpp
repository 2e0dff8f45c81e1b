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
// Inside, one state (peer.hpp, outgoing_message.hpp, incoming_message.hpp), and one file per part that works on it:
//
//   endpoint.cpp    commands and getters           handshake.cpp      sessions
//   transmit.cpp    what leaves next               arrival.cpp        packets in: session, authenticity
//   recovery.cpp    acknowledgements, losses       delivery.cpp       placing blocks, ending messages
//   control.cpp     control packets out and in     frame_writers.cpp  what each frame says
//   timers.cpp      liveness, probes, timers       frame_handlers.cpp what each frame does
//   path_size.cpp   paths that lose large packets  pieces.cpp         packets larger than the path carries
//   invariants.cpp  what must always hold          matching.cpp       receives and messages by tag
//   foresight.cpp   memory asked for ahead of a call
//
// Invariant: a part that changes what a peer may send calls `refresh(peer)` or queues it; a part that changes a time
// calls `arm(peer)`.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config.hpp"
#include "engine/counters.hpp"
#include "engine/deadline_heap.hpp"
#include "engine/event.hpp"
#include "engine/frames.hpp"
#include "engine/grant_scheduler.hpp"
#include "engine/message_command.hpp"
#include "engine/packet.h"
#include "engine/peer.hpp"
#include "engine/pieces.hpp"
#include "engine/prefetch.hpp"
#include "engine/random.hpp"
#include "engine/receive_coalescing.hpp"
#include "engine/ring_queue.hpp"
#include "engine/tag_map.hpp"
#include "engine/turn_scheduler.hpp"
#include "engine/units.hpp"

namespace dlcp {

class PacketBuilder;

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
    bool may_transmit() const { return !control_queue_.empty() || ready_classes_ != 0 || pieces_.pending; }
    bool poll_event(Event& out);
    Time next_deadline() const;
    // How long what arrives from now on may wait in the driver.
    Duration nap(Time now) const { return coalescing_.nap(now); }
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

    const Counters& counters() const { return counters_; }
    // Slow; for tests and reports.
    KeptMessages kept_messages() const;
    PeerStatistics peer_statistics(PeerId peer) const;
    // One entry per path to this peer; returns how many there are.
    std::size_t path_statistics(PeerId peer, std::span<PathStatistics> out) const;
    // Checks every invariant that can be stated about the present state. Empty string: all hold. Slow; for tests.
    std::string check_invariants() const;

private:
    static constexpr std::uint32_t least_id_span = 1024;
    // What a message without a receive is charged: its payload, or at least the size of its record.
    static Bytes charge(std::uint32_t message_bytes) { return {std::max<std::uint64_t>(message_bytes, 512)}; }
    static constexpr std::uint32_t incoming_bit = 1u << 31;  // in MessageId::slot: which slab

    // One arriving packet of a handshake.
    struct HelloArrival {
        Time now;
        Time arrived;
        const dlcp_packet& packet;
        const wire::Header& header;
        const wire::Hello& hello;
    };
    // A hello to be written: about the session, or the candidate.
    struct HelloOut {
        bool answers;
        bool candidate;
        std::uint16_t bytes;  // of the datagram
    };
    // A control packet while it is written, and while it is read.
    struct FramesOut {
        Time now;
        wire::FrameWriter writer;
        bool asks = false;                                 // for an acknowledgement
        bool closing = false;                              // it holds the goodbye
        std::uint8_t traffic_class = wire::control_class;  // of the queue it travels in
        std::uint16_t tests_bytes = 0;  // it tests whether a datagram of this size passes; 0: no
    };
    struct FramesIn {
        Time now;
        Time arrived;
        std::uint32_t delay_ns;  // one way, by both ends' clocks
        std::uint64_t number;    // of the packet
        const dlcp_packet& packet;
    };
    struct Run;  // transmit.cpp

    // Forced inline: code that runs once per packet and has one caller. GCC considers it too large; the calls would
    // cost a tenth of the time per packet.

    // endpoint.cpp
    Peer* peer_at(PeerId id);
    const Peer* peer_at(PeerId id) const;
    std::uint16_t own_block_bytes() const { return block_bytes_for(config_.max_datagram_bytes); }
    std::uint16_t block_bytes_for(std::uint16_t datagram_bytes) const;
    // The block of a message in whole units, where one without has `block_bytes`.
    static std::uint16_t in_units(std::uint16_t block_bytes, std::uint16_t unit_bytes) {
        return static_cast<std::uint16_t>(block_bytes / unit_bytes * unit_bytes);
    }
    // The blocks of a new message: the present ones, or the former if the caller counted just before they shrank; 0: its
    // importance fits neither.
    static std::uint16_t block_bytes_of(const Peer& peer, const SendCommand& command);
    Peer& new_peer(std::uint32_t rank, const dlcp_address& address);
    Peer* find_rank(std::uint32_t rank);
    void push_event(const Event& event) { events_.push(event); }
    void push_bound(Bound bound, CommandError error, PeerId peer, std::uint64_t tag = 0) {
        push_event({.kind = EventKind::bound_reached,
                    .error = error,
                    .peer = peer,
                    .tag = tag,
                    .value = static_cast<std::uint32_t>(bound)});
    }
    CommandResult<MessageId> claim(Time now, Peer* peer, std::uint32_t slot, const ReceiveCommand& command);
    void finish_outgoing(Time now, std::uint32_t slot, CommandError error);
    void unqueue(Peer& peer, std::uint32_t slot);
    void retire_id(Peer& peer, std::uint32_t wire_id);
    void start_next_of_tag(OutgoingMessage& message);
    void enqueue(std::uint32_t slot, bool front);
    void fail_all(Time now, Peer& peer, CommandError error);
    void peer_down(Time now, Peer& peer, CommandError error);
    void end_session(Time now, Peer& peer);
    void forget_outcomes(Peer& peer);
    // The messages that the application may still name. A released message's slot may live on until the peer knows the
    // end.
    bool known_outgoing(std::uint32_t slot, std::uint32_t generation) const {
        return outgoing_.in_use(slot, generation) && !outgoing_[slot].released;
    }
    bool known_incoming(std::uint32_t slot, std::uint32_t generation) const {
        return incoming_.in_use(slot, generation) && !incoming_[slot].released;
    }
    MessageId outgoing_id(std::uint32_t slot) const { return {slot, outgoing_.generation(slot)}; }
    MessageId incoming_id(std::uint32_t slot) const { return {slot | incoming_bit, incoming_.generation(slot)}; }

    // handshake.cpp
    std::uint64_t new_session(const Peer& peer);
    void start_handshake(Time now, Peer& peer);
    void establish(Time now, Peer& peer, std::uint16_t datagram_bytes);
    void adopt_candidate(Time now, Peer& peer);
    void use_channel(Peer& peer);
    bool read_hello(const wire::Datagram& datagram, wire::Hello& hello);
    void handle_hello(Time now, Time arrived, const dlcp_packet& packet, const wire::Datagram& datagram);
    void handle_hello_in_session(Peer& peer, const HelloArrival& arrival);
    void handle_hello_without_session(Peer& peer, const HelloArrival& arrival);
    void measure_handshake(Time now, Peer& peer, bool connecting) const;
    static void note_channel(Peer& peer, const HelloArrival& arrival);
    static void sample_hello(Peer& peer, const HelloArrival& arrival);
    bool proves(SessionKeys& keys, const wire::Datagram& datagram);
    bool establish_by(Time now, Peer& peer, const wire::Datagram& datagram);
    bool write_due_hello(Time now, Peer& peer, dlcp_packet& slot);
    void write_hello(Time now, Peer& peer, const HelloOut& out, dlcp_packet& slot);
    void note_hello_size(Peer& peer, const wire::Hello& hello, std::uint16_t datagram_bytes);
    std::uint16_t take_answer_size(Peer& peer) const;
    std::uint16_t hello_size(const Peer& peer, std::uint32_t rung) const;

    // transmit.cpp
    std::size_t transmit_run(Time now, Peer& peer, std::uint8_t traffic_class, std::span<dlcp_packet> slots);
    [[gnu::always_inline]] inline bool find_work(SendQueue& queue, const SendList& list);
    [[gnu::always_inline]] inline const SendList* list_for_run(Peer& peer, SendQueue& queue);
    const SendList* bring_started_forward(SendQueue& queue, const SendList& list);
    std::uint64_t in_flight_bytes_max(const Peer& peer) const;
    [[gnu::always_inline]] inline bool may_start_run(Peer& peer, Run& run, bool repairs);
    [[gnu::always_inline]] inline void fill_run(Peer& peer, SendQueue& queue, const SendList& list, Run& run,
                                                PacketBuilder& packet);
    bool start_message(Peer& peer, std::uint32_t slot, Time now);
    [[gnu::always_inline]] inline bool add_block(Peer& peer, Run& run, PacketBuilder& packet, std::uint32_t slot);
    [[gnu::always_inline]] inline bool asks_for_acknowledgement(const Peer& peer, const Run& run) const;
    [[gnu::always_inline]] inline void finish_run(Peer& peer, Run& run);
    void refresh(Peer& peer);
    bool may_start_message(Peer& peer);
    // How far apart the wire ids in use with one peer may lie: the number of messages that each side remembers of the
    // other.
    std::uint32_t id_span() const { return std::max(2 * config_.max_messages_per_peer, least_id_span); }

    // arrival.cpp
    [[gnu::always_inline]] inline void handle_packet(Time now, const dlcp_packet& packet,
                                                     wire::Datagram& datagram);
    [[gnu::always_inline]] inline Peer* find_session(Time now, const wire::Datagram& datagram);
    void note_trimmed(Peer& peer, const wire::Header& header);
    [[gnu::always_inline]] inline void take_packet(Time now, Time arrived, Peer& peer, const dlcp_packet& packet,
                                                   const wire::Datagram& datagram);
    void take_whole(const FramesIn& in, Peer& peer, const dlcp_packet& packet, const wire::Datagram& datagram);
    bool authentic(Peer& peer, const dlcp_packet& packet, const wire::Datagram& datagram);
    void acknowledge_batch(Time now, Peer& peer);
    void handle_gone(Time now, const dlcp_address& address);
    void touch(Peer& peer);
    Bytes credit_for(Time now, Peer& peer);

    // delivery.cpp
    bool handle_data(Time now, Time arrived, Peer& peer, const wire::Datagram& datagram);
    void hold_beyond_span(Peer& peer, const wire::Header& header);
    void open_or_hold(Time now, Peer& peer, const wire::Header& header, IncomingEntry& entry);
    [[gnu::always_inline]] inline void place_block(Time now, std::uint32_t slot, const wire::Datagram& datagram,
                                                   std::uint32_t delay_ns);
    bool has_room(std::uint32_t message_bytes) const;
    void announce_unexpected(const Peer& peer, const wire::Header& header);
    bool open_message(Time now, Peer& peer, const wire::Header& header);
    void count_for_turns(IncomingMessage& message);
    void note_first_pass_over(Time now, IncomingMessage& message, std::uint32_t delay_ns);
    void end_if_possible(Time now, std::uint32_t slot);
    void finish_incoming(Time now, std::uint32_t slot, CommandError error);
    void settle_message(std::uint32_t slot);
    void give_up_unexpected(std::uint32_t slot);
    static void close_entry(IncomingEntry& entry, const IncomingMessage& message);
    void forget_incoming(std::uint32_t slot);
    void forget_outcome(IncomingEntry& entry);
    void advance_floor(Time now, Peer& peer, std::uint32_t floor);

    // matching.cpp
    std::uint32_t find_posted(std::uint32_t peer, std::uint64_t tag);
    std::uint32_t take_posted(std::uint32_t peer, std::uint64_t tag);
    void post(std::uint32_t slot);
    void unpost(std::uint32_t slot);
    std::uint32_t find_unexpected(std::uint32_t peer, std::uint64_t tag);
    void add_unexpected(std::uint32_t slot);
    void remove_unexpected(std::uint32_t slot);
    void proceed_held(Peer& peer);
    void chain_push(std::uint32_t scope, std::uint32_t slot);
    void chain_remove(std::uint32_t scope, std::uint32_t slot);

    // control.cpp
    void queue_control(Peer& peer);
    bool owes_control(const Peer& peer) const;
    bool write_control(Time now, Peer& peer, dlcp_packet& slot);
    void send_control(Peer& peer, const FramesOut& out, dlcp_packet& slot);
    void handle_control(Time now, Time arrived, Peer& peer, const dlcp_packet& packet,
                        const wire::Datagram& datagram);
    std::size_t control_bytes(const Peer& peer) const;
    void answer(Peer& peer, std::uint32_t wire_id);

    // frame_writers.cpp
    void write_frames(Peer& peer, FramesOut& out);
    static void note_answered(Peer& peer, std::uint32_t wire_id);
    void write_ack(Peer& peer, FramesOut& out);
    void write_complete(Peer& peer, FramesOut& out);
    void write_outcome(Peer& peer, FramesOut& out);
    void write_probe(Peer& peer, FramesOut& out);
    void write_probe_of_data(Peer& peer, FramesOut& out);
    void write_trimmed(Peer& peer, FramesOut& out);
    void write_hold(Peer& peer, FramesOut& out);
    void write_proceed(Peer& peer, FramesOut& out);
    void write_refuse(Peer& peer, FramesOut& out);
    void write_cancel(Peer& peer, FramesOut& out);
    void write_demand(Peer& peer, FramesOut& out);
    void write_grant(Peer& peer, FramesOut& out);
    void write_floor(Peer& peer, FramesOut& out);
    void write_close(Peer& peer, FramesOut& out);

    // frame_handlers.cpp
    void handle_frame(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    std::uint32_t own_message(const Peer& peer, std::uint32_t wire_id) const;
    void handle_ack_frame(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void take_turn(const FramesIn& in, Peer& peer, const wire::Ack& ack);
    void end_turns(Peer& peer);
    Duration turn_length(const Peer& peer) const;
    void handle_complete(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_outcome(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_probe(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_probed(Peer& peer, const FramesIn& in, std::uint32_t wire_id);
    void handle_trimmed_frame(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_hold(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_proceed(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_refuse(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_cancel(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_demand(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_grant(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_close(Peer& peer, const FramesIn& in, const wire::Frame& frame);
    void handle_piece(Peer& peer, const FramesIn& in, const wire::Frame& frame);

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
        return static_cast<std::uint32_t>(std::bit_width(std::uint32_t{ready_classes_})) - 1;
    }

    // pieces.cpp
    static std::size_t piece_bytes(const Peer& peer, bool keyed);
    static std::size_t pieces_of(const Peer& peer, bool keyed, std::size_t datagram_bytes);
    void cut_into_pieces(Peer& peer, const dlcp_packet& packet, const wire::Header& header);
    void forget_pieces(const Peer& peer);
    std::size_t send_pieces(Time now, std::span<dlcp_packet> slots);

    // path_size.cpp
    void suspect_path_size(Time now, Peer& peer);
    bool write_size_test(Time now, Peer& peer, dlcp_packet& slot);
    void end_size_tests(Time now, Peer& peer);
    void shrink_datagrams(Time now, Peer& peer, std::uint16_t datagram_bytes);

    // recovery.cpp
    void handle_ack(const FramesIn& in, Peer& peer, const wire::Ack& ack);
    [[gnu::always_inline]] inline void acknowledge(Time now, Peer& peer, std::uint64_t number, bool ce,
                                                   AckSample& sample);
    void handle_trimmed(Time now, Peer& peer, const std::uint8_t* numbers, std::size_t count);
    void note_loss_share(Peer& peer, const AckSample& sample);
    void judge_paths(Time now, Peer& peer);
    void report(Peer& peer, const AckSample& sample);
    void pace(Time now, Peer& peer, Duration rtt);
    void end_round(Peer& peer, std::uint64_t newest, AckSample& sample);
    void declare_lost(Peer& peer, std::uint64_t number, SentPacket::Loss loss);
    void take_back(Peer& peer, std::uint32_t slot);
    void widen_tolerance(Time now, Peer& peer, std::uint64_t number);
    Time settles_at(std::uint64_t number, const SentPacket& packet) const;
    void detect_losses(Time now, Peer& peer);

    // timers.cpp
    bool owed_answer(const Peer& peer) const;
    void update_liveness(Time now, Peer& peer);
    void update_demand(Peer& peer);
    void give_turns(Time now);
    void ask(Peer& peer);
    void arm(Peer& peer);
    void fire(Time now, Peer& peer);
    void fire_session(Time now, Peer& peer);
    void probe_unanswered(Time now, Peer& peer);
    Duration probe_timeout(const Peer& peer) const;
    bool loses_by_chance(const Peer& peer) const;

    EndpointConfig config_;
    Counters counters_;
    RecentRate send_rate_;
    ReceiveCoalescing coalescing_;
    Sprayed sprayed_;  // what the network does with this endpoint's peers' packets, and so with its own
    std::vector<std::unique_ptr<Peer>> peers_;  // by PeerId
    Random random_;
    bool closed_ = false;
    std::uint8_t key_epoch_ = 0;
    Slab<OutgoingMessage> outgoing_;
    Slab<IncomingMessage> incoming_;
    TagMap active_tags_;              // (peer, tag) → the message being sent and the last one waiting
    std::uint32_t any_receives_ = 0;  // receives from anyone that wait
    TagMap chains_;                   // scopes below: receives and messages without the other
    static constexpr std::uint32_t posted_scope = 0;
    static constexpr std::uint32_t unexpected_scope = 1;
    Bytes unexpected_{0};  // staged payload
    RingQueue<Event> events_;
    RingQueue<std::uint32_t> control_queue_;  // peers that owe a control packet or a hello
    std::array<RingQueue<std::uint32_t>, wire::traffic_classes> ready_;  // peers that may send, by class
    std::uint8_t ready_classes_ = 0;  // bit c set: ready_[c] may hold peers; clear: it is empty
    DeadlineHeap peer_timers_;
    DeadlineHeap message_timers_;         // of incoming slots: settling and deadlines
    std::vector<std::uint32_t> senders_;  // peers that sent data recently; they share the receive buffer
    Time senders_checked_at_{INT64_MIN / 2};
    GrantScheduler grants_;
    TurnScheduler turns_;
    std::vector<std::uint32_t> told_;  // peers that a decision about turns concerns
    Pieces pieces_;
    std::vector<PathSet::Change> path_changes_;
    std::vector<std::uint32_t> touched_;
    std::vector<std::uint8_t> scratch_;  // for decrypting a packet that may be forged
};

}  // namespace dlcp

// The inside of Endpoint: its state, and the parts that work on it, one file each:
//
//   endpoint.cpp    commands and getters           handshake.cpp  sessions
//   transmit.cpp    what leaves next               arrival.cpp    packets in, placing blocks, ending messages
//   control.cpp     frames out and in              recovery.cpp   acknowledgements, losses, timeouts
//   matching.cpp    receives and messages by tag   invariants.cpp what must always hold
//
// Invariant: a part that changes what a peer may send calls `refresh(peer)` or queues it; a part that changes a time
// calls `arm(peer)`. Nothing here is reentrant: events are queued, never called back.
#pragma once

#include "engine/deadline_heap.hpp"
#include "engine/endpoint.hpp"
#include "engine/frames.hpp"
#include "engine/grant_scheduler.hpp"
#include "engine/peer.hpp"
#include "engine/random.hpp"
#include "engine/ring_queue.hpp"
#include "engine/tag_map.hpp"

namespace dlcp {

class Endpoint::Impl {
public:
    Impl(const EndpointConfig& config, std::uint64_t seed, Time now);

    // endpoint.cpp
    CommandResult<PeerId> connect(Time now, std::uint32_t rank, const dlcp_address& address);
    CommandError disconnect(Time now, PeerId peer);
    CommandResult<MessageId> send(Time now, const SendCommand& command);
    CommandResult<MessageId> receive(Time now, const ReceiveCommand& command);
    CommandError release_blocks(Time now, MessageId message, std::uint32_t first, std::uint32_t count);
    CommandError cancel(Time now, MessageId message);
    std::size_t discard_unexpected(Time now, std::uint64_t tag, std::uint64_t mask);
    KeptMessages kept_messages() const;
    CommandError release(MessageId message);
    CommandResult<MessageOutcome> outcome(MessageId message) const;
    CommandError advance_key_epoch();
    void close(Time now);
    Peer* peer_at(PeerId id);
    const Peer* peer_at(PeerId id) const;
    std::uint16_t own_block_bytes() const { return block_bytes_for(config_.max_datagram_bytes); }
    PeerStatistics peer_statistics(const Peer& peer) const;

    // transmit.cpp
    std::size_t poll_transmit(Time now, std::span<dlcp_packet> slots);
    bool may_transmit() const { return !control_queue_.empty() || ready_classes_ != 0; }

    // arrival.cpp
    void handle_packets(Time now, std::span<const dlcp_packet> packets);

    // recovery.cpp
    void probe(Peer& peer);
    void handle_timer(Time now);
    Time next_deadline() const;

    bool poll_event(Event& out);
    std::string check_invariants() const;

    EndpointConfig config_;
    Counters counters_;
    std::vector<std::unique_ptr<Peer>> peers_;

private:
    static constexpr std::uint32_t least_id_span = 1024;
    // What a message nobody asked for costs: its payload, and at least what is kept to know it.
    static Bytes charge(std::uint32_t message_bytes) { return {std::max<std::uint64_t>(message_bytes, 512)}; }
    static constexpr std::uint32_t incoming_bit = 1u << 31;  // in MessageId::slot: which slab

    // endpoint.cpp
    std::uint16_t block_bytes_for(std::uint16_t datagram_bytes) const;
    Peer& new_peer(std::uint32_t rank, const dlcp_address& address);
    Peer* find_rank(std::uint32_t rank);
    void push_event(const Event& event) { events_.push(event); }
    void finish_outgoing(Time now, std::uint32_t slot, CommandError error);
    void start_next_of_tag(OutgoingMessage& message);
    void enqueue(std::uint32_t slot, bool front);
    void fail_all(Time now, Peer& peer, CommandError error);
    void peer_down(Time now, Peer& peer, CommandError error);
    void end_session(Time now, Peer& peer);
    void forget_outcomes(Peer& peer);
    // What the application may still name: not released, though the slot may live on until the other side knows.
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
    void handle_hello(Time now, Time arrived, const dlcp_packet& packet, const wire::Datagram& datagram);
    bool proves(SessionKeys& keys, const wire::Datagram& datagram);
    bool establish_by(Time now, Peer& peer, const wire::Datagram& datagram);
    void write_hello(Time now, Peer& peer, bool candidate, dlcp_packet& slot);
    std::uint16_t hello_size(const Peer& peer) const;

    // transmit.cpp
    std::size_t transmit_run(Time now, Peer& peer, std::uint8_t traffic_class, std::span<dlcp_packet> slots);
    void refresh(Peer& peer);
    void seal(Peer& peer, dlcp_packet& packet, const std::uint8_t* payload, std::uint32_t payload_bytes,
              std::uint64_t number);
    bool may_start_message(Peer& peer);
    // How far apart the wire ids in use with one peer may lie: what each side remembers of the other's messages.
    std::uint32_t id_span() const { return std::max(2 * config_.max_messages_per_peer, least_id_span); }

    // arrival.cpp
    bool authentic(Peer& peer, const dlcp_packet& packet, const wire::Datagram& datagram);
    void handle_gone(Time now, const dlcp_address& address);
    bool handle_data(Time now, Time arrived, Peer& peer, const wire::Datagram& datagram);
    bool has_room(std::uint32_t message_bytes) const;
    void announce_unexpected(const Peer& peer, const wire::Header& header);
    std::uint32_t open_message(Time now, Peer& peer, const wire::Header& header);
    void note_first_pass_over(Time now, IncomingMessage& message, std::uint32_t delay_ns);
    void end_if_possible(Time now, std::uint32_t slot);
    void finish_incoming(Time now, std::uint32_t slot, CommandError error);
    void forget_incoming(std::uint32_t slot);
    void advance_floor(Time now, Peer& peer, std::uint32_t floor);
    void touch(Peer& peer);
    Bytes credit_for(Time now, Peer& peer);

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
    void write_ack(Time now, Peer& peer, wire::FrameWriter& writer);
    void handle_control(Time now, Time arrived, Peer& peer, const wire::Datagram& datagram);
    void answer(Peer& peer, std::uint32_t wire_id);

    // recovery.cpp
    void handle_ack(Time now, Peer& peer, const wire::Ack& ack);
    void handle_trimmed(Time now, Peer& peer, const std::uint8_t* numbers, std::size_t count);
    void note_loss_share(Peer& peer, const AckSample& sample);
    void judge_paths(Time now, Peer& peer);
    void report(Peer& peer, const AckSample& sample);
    void end_round(Peer& peer, std::uint64_t newest, AckSample& sample);
    void declare_lost(Peer& peer, std::uint64_t number);
    void detect_losses(Time now, Peer& peer);
    bool owed_answer(const Peer& peer) const;
    void update_liveness(Time now, Peer& peer);
    void ask(Peer& peer);
    void arm(Peer& peer);
    void fire(Time now, Peer& peer);
    Duration probe_timeout(const Peer& peer) const;

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
    std::uint8_t ready_classes_ = 0;  // bit c: ready_[c] may hold some; clear: it holds none
    DeadlineHeap peer_timers_;
    DeadlineHeap message_timers_;         // of incoming slots: settling and deadlines
    std::vector<std::uint32_t> senders_;  // peers that sent data lately: share the receive buffer
    Time senders_checked_at_{INT64_MIN / 2};
    GrantScheduler grants_;
    std::vector<PathSet::Change> path_changes_;
    std::vector<std::uint32_t> touched_;
    std::vector<std::uint8_t> scratch_;  // for decrypting a packet that may be forged

    friend class Endpoint;
};

}  // namespace dlcp

// Commands and getters of an endpoint. The protocol itself is in the parts listed in endpoint_impl.hpp.
#include "engine/endpoint.hpp"

#include <algorithm>
#include <cstring>

#include "engine/endpoint_impl.hpp"

namespace dlcp {

namespace {

bool same(const dlcp_address& a, const dlcp_address& b) {
    return a.length == b.length && std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

// Messages that end before the peer is told, if nothing else is said meanwhile: few enough that its memory of ids stays
// small, many enough that telling costs nothing.
constexpr std::uint32_t untold_messages = 64;

// One quantum of receiver credit: as much as one full segmentation-offload burst, so that grants do not cost a
// sender its runs.
constexpr Bytes grant_quantum{64 * 1024};

}  // namespace

Endpoint::Impl::Impl(const EndpointConfig& config, std::uint64_t seed, Time)
    : config_(config), random_(seed), grants_(config.line_rate, grant_quantum) {}

std::uint16_t Endpoint::Impl::block_bytes_for(std::uint16_t datagram_bytes) const {
    const std::size_t overhead = wire::header_bytes + (config_.job_key ? wire::tag_bytes : 0);
    // A multiple of 16, so that every block starts on an element of any type, and on a granule of collectives.
    return static_cast<std::uint16_t>((datagram_bytes - overhead) / 16 * 16);
}

Peer* Endpoint::Impl::peer_at(PeerId id) { return id.value < peers_.size() ? peers_[id.value].get() : nullptr; }
const Peer* Endpoint::Impl::peer_at(PeerId id) const {
    return id.value < peers_.size() ? peers_[id.value].get() : nullptr;
}

Peer* Endpoint::Impl::find_rank(std::uint32_t rank) {
    for (auto& peer : peers_)
        if (peer->rank == rank) return peer.get();
    return nullptr;
}

Peer& Endpoint::Impl::new_peer(std::uint32_t rank, const dlcp_address& address) {
    auto peer = std::make_unique<Peer>();
    peer->index = static_cast<std::uint32_t>(peers_.size());
    peer->rank = rank;
    peer->address = address;
    peer->own_session = new_session(*peer);
    peer->datagram_bytes = config_.max_datagram_bytes;
    peer->block_bytes = own_block_bytes();
    peers_.push_back(std::move(peer));
    return *peers_.back();
}

CommandResult<PeerId> Endpoint::Impl::connect(Time now, std::uint32_t rank, const dlcp_address& address) {
    if (closed_) return {{}, CommandError::closed};
    if (rank == config_.rank) return {{}, CommandError::own_rank};
    Peer* peer = find_rank(rank);
    if (peer) {
        if (!same(peer->address, address)) {
            // A peer that spoke first may be reachable at another address than it sends from; one that was named is not
            // moved while it is up.
            if (peer->state == Peer::State::established && !peer->learned)
                return {{}, CommandError::duplicate_rank};
            peer->address = address;
        }
    } else {
        if (peers_.size() >= config_.max_peers) return {{}, CommandError::too_many_peers};
        peer = &new_peer(rank, address);
    }
    peer->learned = false;
    if (peer->state == Peer::State::idle || peer->state == Peer::State::gone) start_handshake(now, *peer);
    return {{peer->index}, CommandError::none};
}

CommandError Endpoint::Impl::disconnect(Time now, PeerId id) {
    Peer* peer = peer_at(id);
    if (!peer) return CommandError::unknown_peer;
    // What arrived whole is said once more: if the first word was lost, the sender would take its message for failed.
    for (std::uint32_t wire_id = peer->incoming.base(); wire_id != peer->incoming.end(); ++wire_id)
        if (peer->incoming[wire_id].state == IncomingEntry::State::delivered ||
            peer->incoming[wire_id].state == IncomingEntry::State::abandoned)
            answer(*peer, wire_id);
    fail_all(now, *peer, CommandError::closed);
    if (peer->state == Peer::State::established) {
        peer->close_due = true;
        queue_control(*peer);
    }
    peer->hello_due = false;
    peer->hello_at = time_never;
    if (peer->state == Peer::State::connecting) peer->state = Peer::State::idle;
    update_liveness(now, *peer);
    return CommandError::none;
}

CommandResult<MessageId> Endpoint::Impl::send(Time now, const SendCommand& c) {
    if (closed_) return {{}, CommandError::closed};
    Peer* peer = peer_at(c.peer);
    if (!peer) return {{}, CommandError::unknown_peer};
    if (c.traffic_class >= wire::control_class) return {{}, CommandError::bad_class};
    const bool reliable = c.delivery == Delivery::reliable;
    if (!reliable && !(c.loss_ratio >= 0.0 && c.loss_ratio < 1.0)) return {{}, CommandError::bad_loss_ratio};
    if (c.deadline < Duration{0} || (c.delivery == Delivery::deadline && c.deadline == Duration{0}))
        return {{}, CommandError::bad_deadline};
    if (!c.importance.empty() && c.importance.size() != wire::block_count(c.message_bytes, peer->block_bytes))
        return {{}, CommandError::bad_importance_count};
    if (peer->outgoing.size() >= config_.max_messages_per_peer) return {{}, CommandError::too_many_messages};

    const std::uint32_t slot = outgoing_.take();
    OutgoingMessage& m = outgoing_[slot];
    m.peer = peer->index;
    m.tag = c.tag;
    m.payload = c.payload;
    m.message_bytes = c.message_bytes;
    m.traffic_class = c.traffic_class;
    m.delivery = c.delivery;
    m.budget = reliable ? 0 : wire::encode_budget(c.loss_ratio);
    m.deadline = c.delivery == Delivery::deadline ? wire::encode_deadline(c.deadline) : 0;
    m.patient_until = c.delivery == Delivery::bounded && c.patience >= Duration{0} ? now + c.patience : time_never;
    m.since = now;
    m.state = OutgoingMessage::State::waiting;
    m.wire_id = 0;
    m.error = CommandError::none;
    m.retransmitted_bytes = 0;
    m.released = false;
    m.next_same_tag = UINT32_MAX;
    m.gated = c.gated;
    m.eager_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(config_.eager.value, UINT32_MAX));
    m.reset(peer->block_bytes, c.importance);
    peer->outgoing.push_back(outgoing_, slot);

    // Messages of one tag go one after the other, so that they pair with receives in order.
    TagMap::Chain& chain = active_tags_.get(peer->index, c.tag);
    const bool first = chain.first == UINT32_MAX;
    if (first)
        chain.first = slot;
    else
        outgoing_[chain.last].next_same_tag = slot;
    chain.last = slot;

    if (peer->state == Peer::State::idle || peer->state == Peer::State::gone) start_handshake(now, *peer);
    if (first && peer->state == Peer::State::established) enqueue(slot, false);
    update_liveness(now, *peer);
    return {outgoing_id(slot), CommandError::none};
}

CommandResult<MessageId> Endpoint::Impl::receive(Time now, const ReceiveCommand& c) {
    if (closed_) return {{}, CommandError::closed};
    Peer* peer = nullptr;
    if (!(c.peer == any_peer)) {
        peer = peer_at(c.peer);
        if (!peer) return {{}, CommandError::unknown_peer};
        if (peer->state == Peer::State::idle || peer->state == Peer::State::gone) start_handshake(now, *peer);
    }
    const std::uint32_t wanted = peer ? peer->index : UINT32_MAX;
    const std::uint32_t found = find_unexpected(wanted, c.tag);
    if (found == UINT32_MAX) {
        if ((peer ? peer->receives : any_receives_) >= config_.max_messages_per_peer)
            return {{}, CommandError::too_many_messages};
        const std::uint32_t slot = incoming_.take();
        IncomingMessage& m = incoming_[slot];
        m.reset();
        m.posted = true;
        m.wanted_peer = wanted;
        m.tag = c.tag;
        m.buffer = c.buffer;
        m.capacity_bytes = c.capacity_bytes;
        m.sink = c.sink;
        m.exact = c.exact;
        m.since = now;
        post(slot);
        if (peer) {
            peer->posted.push_back(incoming_, slot);
            ++peer->receives;
            update_liveness(now, *peer);
            proceed_held(*peer);
        } else {
            for (auto& each : peers_) proceed_held(*each);
        }
        return {incoming_id(slot), CommandError::none};
    }

    // The message, or a part of it, is here already.
    remove_unexpected(found);
    IncomingMessage& m = incoming_[found];
    const MessageId id = incoming_id(found);
    m.posted = true;
    m.wanted_peer = wanted;
    m.since = now;
    m.buffer = c.buffer;
    m.capacity_bytes = c.capacity_bytes;
    m.sink = c.sink;
    m.exact = c.exact;
    if (m.size_error() == CommandError::none)
        m.unstage(now);
    else
        m.staging.reset();
    unexpected_ -= charge(m.message_bytes);
    if (peer && !m.over) ++peer->receives;
    if (const CommandError wrong = m.size_error(); wrong != CommandError::none) {
        if (!m.over) {
            finish_incoming(now, found, wrong);
        } else {
            m.error = wrong;
            ++counters_.messages_failed;
            push_event({EventKind::receive_failed, m.error, {m.peer}, id, m.tag, 0, {0}});
        }
    } else if (m.over) {
        ++counters_.messages_received;
        push_event({EventKind::receive_finished, CommandError::none, {m.peer}, id, m.tag, 0, {0}});
    } else {
        update_liveness(now, *peers_[m.peer]);
    }
    for (auto& each : peers_) proceed_held(*each);
    return {id, CommandError::none};
}

CommandError Endpoint::Impl::release_blocks(Time now, MessageId id, std::uint32_t first, std::uint32_t count) {
    if (!known_outgoing(id.slot, id.generation)) return CommandError::unknown_message;
    OutgoingMessage& m = outgoing_[id.slot];
    if (m.told()) return CommandError::none;
    Peer& peer = *peers_[m.peer];
    if (peer.state != Peer::State::established || !m.gated || first > m.blocks() || count > m.blocks() - first)
        return CommandError::bad_release;
    m.release(first, count);
    if (m.state == OutgoingMessage::State::sending && !m.queue_link.linked) {
        enqueue(id.slot, false);
        update_liveness(now, peer);
    }
    return CommandError::none;
}

CommandError Endpoint::Impl::cancel(Time now, MessageId id) {
    if (id.slot != UINT32_MAX && id.slot & incoming_bit) {
        const std::uint32_t slot = id.slot & ~incoming_bit;
        if (!known_incoming(slot, id.generation)) return CommandError::unknown_message;
        if (incoming_[slot].over) return CommandError::message_over;
        finish_incoming(now, slot, CommandError::cancelled);
        return CommandError::none;
    }
    if (!known_outgoing(id.slot, id.generation)) return CommandError::unknown_message;
    OutgoingMessage& m = outgoing_[id.slot];
    if (m.told()) return CommandError::message_over;
    Peer& peer = *peers_[m.peer];
    if (m.wire_id == 0) {
        finish_outgoing(now, id.slot, CommandError::cancelled);
        return CommandError::none;
    }
    // The receiver must hear of it, or it would wait for the rest. The caller's memory is free at once.
    peer.queues[m.traffic_class].remove(outgoing_, id.slot);
    m.state = OutgoingMessage::State::cancelling;
    m.payload = nullptr;
    m.error = CommandError::cancelled;
    ++counters_.messages_failed;
    push_event({EventKind::send_failed, m.error, {m.peer}, id, m.tag, 0, now - m.since});
    peer.cancel_ids.push_back(m.wire_id);
    queue_control(peer);
    return CommandError::none;
}

std::size_t Endpoint::Impl::discard_unexpected(Time now, std::uint64_t tag, std::uint64_t mask) {
    std::size_t discarded = 0;
    for (std::uint32_t slot = 0; slot < incoming_.slots(); ++slot) {
        if (!incoming_.in_use(slot)) continue;
        IncomingMessage& m = incoming_[slot];
        if (m.posted || m.released || ((m.tag ^ tag) & mask) != 0) continue;
        ++discarded;
        if (!m.over) {
            finish_incoming(now, slot, CommandError::cancelled);
            continue;
        }
        remove_unexpected(slot);
        unexpected_ -= charge(m.message_bytes);
        m.staging.reset();
        m.released = true;
        forget_incoming(slot);
    }
    // Also without any: what is on hold may be among those that are not wanted.
    for (auto& each : peers_) proceed_held(*each);
    return discarded;
}

KeptMessages Endpoint::Impl::kept_messages() const {
    KeptMessages kept;
    for (std::uint32_t slot = 0; slot < outgoing_.slots(); ++slot) kept.outgoing += outgoing_.in_use(slot);
    for (std::uint32_t slot = 0; slot < incoming_.slots(); ++slot) kept.incoming += incoming_.in_use(slot);
    kept.unexpected = unexpected_;
    return kept;
}

CommandError Endpoint::Impl::release(MessageId id) {
    if (id.slot != UINT32_MAX && id.slot & incoming_bit) {
        const std::uint32_t slot = id.slot & ~incoming_bit;
        if (!known_incoming(slot, id.generation)) return CommandError::unknown_message;
        IncomingMessage& m = incoming_[slot];
        if (!m.over) return CommandError::message_not_over;
        m.released = true;
        forget_incoming(slot);
        return CommandError::none;
    }
    if (!known_outgoing(id.slot, id.generation)) return CommandError::unknown_message;
    OutgoingMessage& m = outgoing_[id.slot];
    if (m.state == OutgoingMessage::State::cancelling) {
        // Told as failed already; the slot goes when the receiver has heard.
        m.released = true;
        return CommandError::none;
    }
    if (!m.over()) return CommandError::message_not_over;
    outgoing_.give_back(id.slot);
    return CommandError::none;
}

CommandResult<MessageOutcome> Endpoint::Impl::outcome(MessageId id) const {
    MessageOutcome out;
    if (id.slot != UINT32_MAX && id.slot & incoming_bit) {
        const std::uint32_t slot = id.slot & ~incoming_bit;
        if (!known_incoming(slot, id.generation)) return {{}, CommandError::unknown_message};
        const IncomingMessage& m = incoming_[slot];
        if (!m.over) return {{}, CommandError::message_not_over};
        out.message_bytes = m.message_bytes;
        out.block_bytes = m.block_bytes;
        out.blocks = m.blocks;
        out.abandoned_blocks = m.abandoned_blocks;
        out.abandoned_bytes = m.abandoned_bytes;
        out.delivered_bytes = m.received_bytes;
        if (m.abandoned_blocks > 0) out.abandoned = m.received.words();
        return {out, CommandError::none};
    }
    if (!known_outgoing(id.slot, id.generation)) return {{}, CommandError::unknown_message};
    const OutgoingMessage& m = outgoing_[id.slot];
    if (!m.told()) return {{}, CommandError::message_not_over};
    out.message_bytes = m.message_bytes;
    out.block_bytes = m.block_bytes();
    out.blocks = m.blocks();
    out.retransmitted_bytes = m.retransmitted_bytes;
    if (m.error == CommandError::none) {
        out.abandoned_blocks = m.abandoned_known();
        out.abandoned_bytes = m.bytes_of(m.abandoned());
        out.delivered_bytes = m.message_bytes - out.abandoned_bytes;
        if (out.abandoned_blocks > 0) out.abandoned = m.abandoned().words();
    }
    return {out, CommandError::none};
}

CommandError Endpoint::Impl::advance_key_epoch() {
    if (!config_.job_key) return CommandError::no_key;
    ++key_epoch_;
    for (auto& peer : peers_) peer->keys.advance_send(config_, key_epoch_);
    return CommandError::none;
}

void Endpoint::Impl::close(Time now) {
    if (closed_) return;
    for (auto& peer : peers_) disconnect(now, {peer->index});
    // Receives from anyone belong to no peer.
    for (std::uint32_t slot = 0; slot < incoming_.slots(); ++slot)
        if (incoming_.in_use(slot) && incoming_[slot].posted && !incoming_[slot].over)
            finish_incoming(now, slot, CommandError::closed);
    closed_ = true;
}

// A message is at the head of its tag's chain and its session is up: it may be sent.
void Endpoint::Impl::enqueue(std::uint32_t slot, bool front) {
    OutgoingMessage& m = outgoing_[slot];
    Peer& peer = *peers_[m.peer];
    if (m.wire_id == 0) m.recut(peer.block_bytes);
    m.state = OutgoingMessage::State::sending;
    // One that waits, for release_blocks() or for a first acknowledgement, joins when it has something.
    if (!m.queue_link.linked && m.has_block_to_send()) {
        if (front)
            peer.queues[m.traffic_class].push_front(outgoing_, slot);
        else
            peer.queues[m.traffic_class].push_back(outgoing_, slot);
    }
    refresh(peer);
}

void Endpoint::Impl::start_next_of_tag(OutgoingMessage& message) {
    TagMap::Chain* chain = active_tags_.find(message.peer, message.tag);
    const std::uint32_t next = message.next_same_tag;
    if (next == UINT32_MAX) {
        active_tags_.erase(message.peer, message.tag);
        return;
    }
    chain->first = next;
    if (peers_[message.peer]->state == Peer::State::established) enqueue(next, false);
}

// The final event of a message, unless it was told before (cancelled), and its removal from every queue.
void Endpoint::Impl::finish_outgoing(Time now, std::uint32_t slot, CommandError error) {
    OutgoingMessage& m = outgoing_[slot];
    Peer& peer = *peers_[m.peer];
    const bool told = m.state == OutgoingMessage::State::cancelling;
    const bool head = active_tags_.find(m.peer, m.tag)->first == slot;
    peer.queues[m.traffic_class].remove(outgoing_, slot);
    peer.started.remove(outgoing_, slot);
    peer.outgoing.remove(outgoing_, slot);
    if (m.wire_id != 0) {
        peer.outgoing_ids[m.wire_id] = UINT32_MAX;
        // The floor the peer hears of: its memory of what is below is freed.
        std::uint32_t floor = peer.outgoing_ids.base();
        while (floor != peer.outgoing_ids.end() && peer.outgoing_ids[floor] == UINT32_MAX) ++floor;
        peer.outgoing_ids.advance(floor);
        if (peer.ids_exhausted) refresh(peer);
        // A stream in one direction has no other reason to say so, and the peer remembers what it is not told of.
        if (floor - peer.floor_told >= untold_messages && peer.state == Peer::State::established) {
            peer.floor_due = true;
            queue_control(peer);
        }
    }
    m.state = OutgoingMessage::State::over;
    if (head) {
        start_next_of_tag(m);
    } else {
        // A waiting one was cancelled: take it out of the middle of its chain.
        TagMap::Chain* chain = active_tags_.find(m.peer, m.tag);
        std::uint32_t before = chain->first;
        while (outgoing_[before].next_same_tag != slot) before = outgoing_[before].next_same_tag;
        outgoing_[before].next_same_tag = m.next_same_tag;
        if (chain->last == slot) chain->last = before;
    }
    m.next_same_tag = UINT32_MAX;
    if (told) {
        if (m.released) outgoing_.give_back(slot);
    } else {
        m.error = error;
        m.payload = nullptr;
        if (error == CommandError::none)
            ++counters_.messages_sent;
        else
            ++counters_.messages_failed;
        push_event({error == CommandError::none ? EventKind::send_finished : EventKind::send_failed,
                    error,
                    {m.peer},
                    outgoing_id(slot),
                    m.tag,
                    0,
                    now - m.since});
    }
    update_liveness(now, peer);
}

void Endpoint::Impl::fail_all(Time now, Peer& peer, CommandError error) {
    // Not established while it lasts: failing the head of a tag's chain must not start the next one.
    const Peer::State state = peer.state;
    peer.state = Peer::State::gone;
    while (!peer.outgoing.empty()) finish_outgoing(now, peer.outgoing.front(), error);
    while (!peer.posted.empty()) finish_incoming(now, peer.posted.front(), error);
    peer.state = state;
}

// Nothing more to tell of messages that are over: the session ends.
void Endpoint::Impl::forget_outcomes(Peer& peer) {
    for (std::uint32_t id = peer.incoming.base(); id != peer.incoming.end(); ++id) {
        IncomingEntry& entry = peer.incoming[id];
        if (entry.slot == UINT32_MAX) continue;
        const std::uint32_t slot = entry.slot;
        entry.slot = UINT32_MAX;
        incoming_[slot].confirmed = true;
        forget_incoming(slot);
    }
}

// The peer may come back with another session, and so may we.
void Endpoint::Impl::end_session(Time now, Peer& peer) {
    peer.state = Peer::State::gone;
    // Messages that began to come while the goodbye was due.
    for (std::uint32_t id = peer.incoming.base(); id != peer.incoming.end(); ++id)
        if (peer.incoming[id].state == IncomingEntry::State::active)
            finish_incoming(now, peer.incoming[id].slot, CommandError::closed);
    forget_outcomes(peer);
    peer.own_session = new_session(peer);
    peer.peer_session = 0;
    peer.candidate_own = peer.candidate_peer = 0;
    peer.answer_hello = peer.answer_candidate = peer.close_due = peer.hello_due = false;
    peer.hello_number = 0;
    peer.hello_at = peer.probe_at = peer.loss_at = peer.pace_at = peer.ack_at = time_never;
    grants_.forget(peer.index);
    update_liveness(now, peer);
}

void Endpoint::Impl::peer_down(Time now, Peer& peer, CommandError error) {
    fail_all(now, peer, error);
    push_event({EventKind::peer_down, error, {peer.index}, {}, 0, 0, now - peer.last_heard});
    end_session(now, peer);
}

PeerStatistics Endpoint::Impl::peer_statistics(const Peer& peer) const {
    PeerStatistics s;
    s.rank = peer.rank;
    s.established = peer.state == Peer::State::established;
    s.last_heard = peer.last_heard;
    s.rtt = peer.rtt.smoothed();
    s.rtt_min = peer.rtt.min();
    s.queue_delay = peer.queue_delay;
    if (peer.congestion) s.window = peer.congestion->window({peer.in_flight, peer.sent_total, peer.granted});
    s.in_flight = peer.in_flight;
    s.credit = peer.credit;
    s.max_datagram_bytes = peer.datagram_bytes;
    return s;
}

bool Endpoint::Impl::poll_event(Event& out) {
    if (events_.empty()) return false;
    out = events_.front();
    events_.pop();
    return true;
}

Endpoint::Endpoint(const EndpointConfig& config, std::uint64_t seed, Time now)
    : impl_(std::make_unique<Impl>(config, seed, now)) {}
Endpoint::~Endpoint() = default;

CommandResult<PeerId> Endpoint::connect(Time now, std::uint32_t rank, const dlcp_address& address) {
    return impl_->connect(now, rank, address);
}
CommandError Endpoint::disconnect(Time now, PeerId peer) { return impl_->disconnect(now, peer); }
std::optional<PeerId> Endpoint::find_peer(std::uint32_t rank) const {
    Peer* peer = impl_->find_rank(rank);
    if (!peer) return std::nullopt;
    return PeerId{peer->index};
}
std::uint32_t Endpoint::rank_of(PeerId peer) const {
    const Peer* p = impl_->peer_at(peer);
    return p ? p->rank : UINT32_MAX;
}
const dlcp_address* Endpoint::address_of(PeerId peer) const {
    const Peer* p = impl_->peer_at(peer);
    return p ? &p->address : nullptr;
}
bool Endpoint::established(PeerId peer) const {
    const Peer* p = impl_->peer_at(peer);
    return p && p->state == Peer::State::established;
}
std::uint16_t Endpoint::block_bytes(PeerId peer) const {
    const Peer* p = impl_->peer_at(peer);
    return p ? p->block_bytes : impl_->own_block_bytes();
}
CommandResult<MessageId> Endpoint::send(Time now, const SendCommand& command) { return impl_->send(now, command); }
CommandResult<MessageId> Endpoint::receive(Time now, const ReceiveCommand& command) {
    return impl_->receive(now, command);
}
CommandError Endpoint::release_blocks(Time now, MessageId message, std::uint32_t first, std::uint32_t count) {
    return impl_->release_blocks(now, message, first, count);
}
CommandError Endpoint::cancel(Time now, MessageId message) { return impl_->cancel(now, message); }
std::size_t Endpoint::discard_unexpected(Time now, std::uint64_t tag, std::uint64_t mask) {
    return impl_->discard_unexpected(now, tag, mask);
}
KeptMessages Endpoint::kept_messages() const { return impl_->kept_messages(); }
CommandError Endpoint::release(MessageId message) { return impl_->release(message); }
CommandResult<MessageOutcome> Endpoint::outcome(MessageId message) const { return impl_->outcome(message); }
CommandError Endpoint::advance_key_epoch() { return impl_->advance_key_epoch(); }
void Endpoint::close(Time now) { impl_->close(now); }
void Endpoint::handle_packets(Time now, std::span<const dlcp_packet> packets) {
    impl_->handle_packets(now, packets);
}
void Endpoint::handle_timer(Time now) { impl_->handle_timer(now); }
std::size_t Endpoint::poll_transmit(Time now, std::span<dlcp_packet> slots) {
    return impl_->poll_transmit(now, slots);
}
bool Endpoint::may_transmit() const { return impl_->may_transmit(); }
bool Endpoint::poll_event(Event& out) { return impl_->poll_event(out); }
Time Endpoint::next_deadline() const { return impl_->next_deadline(); }
const Counters& Endpoint::counters() const { return impl_->counters_; }
PeerStatistics Endpoint::peer_statistics(PeerId peer) const {
    const Peer* p = impl_->peer_at(peer);
    return p ? impl_->peer_statistics(*p) : PeerStatistics{};
}
std::size_t Endpoint::path_statistics(PeerId peer, std::span<PathStatistics> out) const {
    const Peer* p = impl_->peer_at(peer);
    return p ? p->paths.statistics(out) : 0;
}
void Endpoint::probe(PeerId peer) {
    if (Peer* p = impl_->peer_at(peer)) impl_->probe(*p);
}
std::string Endpoint::check_invariants() const { return impl_->check_invariants(); }

}  // namespace dlcp

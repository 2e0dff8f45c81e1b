// Commands and getters of an endpoint. The protocol itself is in the parts that endpoint.hpp lists.
#include "engine/endpoint.hpp"

#include <algorithm>
#include <cstring>

namespace dlcp {

namespace {

bool same(const dlcp_address& a, const dlcp_address& b) {
    return a.length == b.length && std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

// So many messages end before an otherwise empty packet informs the peer: few enough to keep the peer's memory of ids
// small, many enough that the packet costs nothing.
constexpr std::uint32_t untold_messages = 64;

// One quantum of receiver credit: one full segmentation-offload burst, so that grants do not break up a sender's runs.
constexpr Bytes grant_quantum{64 * 1024};

}  // namespace

Endpoint::Endpoint(const EndpointConfig& config, std::uint64_t seed, Time)
    : config_(config),
      sprayed_(config.switches_spray),
      random_(seed),
      grants_(config.line_rate, grant_quantum),
      turns_(congestion_controllers[static_cast<std::size_t>(config.congestion)].gives_turns, config.line_rate,
             Bytes{config.max_datagram_bytes}) {}

std::uint16_t Endpoint::block_bytes_for(std::uint16_t datagram_bytes) const {
    const std::size_t overhead = wire::header_bytes + (config_.job_key ? wire::tag_bytes : 0);
    // A multiple of 16, so that every block starts on an element of any type, and on a granule of collectives.
    return static_cast<std::uint16_t>((datagram_bytes - overhead) / 16 * 16);
}

Peer* Endpoint::peer_at(PeerId id) { return id.value < peers_.size() ? peers_[id.value].get() : nullptr; }
const Peer* Endpoint::peer_at(PeerId id) const {
    return id.value < peers_.size() ? peers_[id.value].get() : nullptr;
}

Peer* Endpoint::find_rank(std::uint32_t rank) {
    for (auto& peer : peers_)
        if (peer->rank == rank) return peer.get();
    return nullptr;
}

Peer& Endpoint::new_peer(std::uint32_t rank, const dlcp_address& address) {
    auto peer = std::make_unique<Peer>();
    peer->index = static_cast<std::uint32_t>(peers_.size());
    peer->rank = rank;
    peer->address = address;
    peer->handshake.own_session = new_session(*peer);
    peer->datagram_bytes = config_.max_datagram_bytes;
    peer->block_bytes = peer->former_block_bytes = own_block_bytes();
    peers_.push_back(std::move(peer));
    return *peers_.back();
}

CommandResult<PeerId> Endpoint::connect(Time now, std::uint32_t rank, const dlcp_address& address) {
    if (closed_) return {{}, CommandError::closed};
    if (rank == config_.rank) return {{}, CommandError::own_rank};
    Peer* peer = find_rank(rank);
    if (peer) {
        if (!same(peer->address, address)) {
            // A peer that spoke first may be reachable at another address than it sends from. The address of a named
            // peer does not change while its session is up.
            if (peer->up() && !peer->learned) return {{}, CommandError::duplicate_rank};
            peer->address = address;
        }
    } else {
        if (peers_.size() >= config_.max_peers) return {{}, CommandError::too_many_peers};
        peer = &new_peer(rank, address);
    }
    peer->learned = false;
    if (peer->state.may(PeerState::Event::connect)) start_handshake(now, *peer);
    return {{peer->index}, CommandError::none};
}

CommandError Endpoint::disconnect(Time now, PeerId id) {
    Peer* peer = peer_at(id);
    if (!peer) return CommandError::unknown_peer;
    if (peer->up()) {
        // Answer the messages that arrived whole once more: a sender that missed the answer would take its message for
        // failed.
        const IdRing<IncomingEntry>& messages = peer->session->receiver.messages;
        for (std::uint32_t wire_id = messages.base(); wire_id != messages.end(); ++wire_id)
            if (messages[wire_id].state == IncomingIdState::State::delivered ||
                messages[wire_id].state == IncomingIdState::State::abandoned)
                answer(*peer, wire_id);
    }
    fail_all(now, *peer, CommandError::closed);
    if (peer->up()) {
        peer->session->owed.close = true;
        queue_control(*peer);
    }
    peer->handshake.due = false;
    peer->handshake.at = time_never;
    if (peer->state == PeerState::State::connecting) peer->state.apply(PeerState::Event::stop);
    update_liveness(now, *peer);
    return CommandError::none;
}

CommandResult<MessageId> Endpoint::send(Time now, const SendCommand& c) {
    if (closed_) return {{}, CommandError::closed};
    Peer* peer = peer_at(c.peer);
    if (!peer) return {{}, CommandError::unknown_peer};
    if (c.traffic_class >= wire::control_class) return {{}, CommandError::bad_class};
    const bool reliable = c.delivery == Delivery::reliable;
    if (!reliable && !(c.loss_ratio >= 0.0 && c.loss_ratio < 1.0)) return {{}, CommandError::bad_loss_ratio};
    if (c.deadline < Duration{0} || (c.delivery == Delivery::deadline && c.deadline == Duration{0}))
        return {{}, CommandError::bad_deadline};
    if (c.unit_bytes == 0 || c.unit_bytes > most_unit_bytes) return {{}, CommandError::bad_unit};
    const std::uint16_t block_bytes = block_bytes_of(*peer, c);
    if (block_bytes == 0) return {{}, CommandError::bad_importance_count};
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
    m.state = OutgoingState();
    m.wire_id = 0;
    m.error = CommandError::none;
    m.retransmitted_bytes = 0;
    m.released = false;
    m.next_same_tag = UINT32_MAX;
    m.gated = c.gated;
    m.eager_bytes =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(peer->stretched(config_.eager).value, UINT32_MAX));
    m.unit_bytes = c.unit_bytes;
    m.reset(block_bytes, c.importance);
    peer->outgoing.push_back(outgoing_, slot);

    // Messages of one tag leave one after the other, so that they match receives in order.
    TagMap::Chain& chain = active_tags_.get(peer->index, c.tag);
    const bool first = chain.first == UINT32_MAX;
    if (first)
        chain.first = slot;
    else
        outgoing_[chain.last].next_same_tag = slot;
    chain.last = slot;

    if (peer->state.may(PeerState::Event::connect)) start_handshake(now, *peer);
    if (first && peer->up()) enqueue(slot, false);
    update_liveness(now, *peer);
    return {outgoing_id(slot), CommandError::none};
}

CommandResult<MessageId> Endpoint::receive(Time now, const ReceiveCommand& c) {
    if (closed_) return {{}, CommandError::closed};
    Peer* peer = nullptr;
    if (!(c.peer == any_peer)) {
        peer = peer_at(c.peer);
        if (!peer) return {{}, CommandError::unknown_peer};
    }
    // What is here needs no peer: it may have left.
    const std::uint32_t found = find_unexpected(peer ? peer->index : UINT32_MAX, c.tag);
    if (found != UINT32_MAX) return claim(now, peer, found, c);
    if (peer && peer->state.may(PeerState::Event::connect)) start_handshake(now, *peer);
    if ((peer ? peer->receives : any_receives_) >= config_.max_messages_per_peer)
        return {{}, CommandError::too_many_messages};
    const std::uint32_t slot = incoming_.take();
    incoming_[slot].reset();
    incoming_[slot].state.apply(IncomingState::Event::post);
    incoming_[slot].tag = c.tag;
    incoming_[slot].set_receive(now, peer ? peer->index : UINT32_MAX, c);
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

// Posts a receive for a message that has arrived, in full or in part.
CommandResult<MessageId> Endpoint::claim(Time now, Peer* peer, std::uint32_t slot, const ReceiveCommand& c) {
    remove_unexpected(slot);
    IncomingMessage& m = incoming_[slot];
    const MessageId id = incoming_id(slot);
    m.state.apply(IncomingState::Event::claim);
    m.set_receive(now, peer ? peer->index : UINT32_MAX, c);
    const CommandError wrong = m.size_error();
    if (wrong == CommandError::none)
        m.unstage(now);
    else
        m.staging.reset();
    unexpected_ -= charge(m.message_bytes);
    if (!m.over()) {
        if (peer) ++peer->receives;
        count_for_turns(m);
        if (wrong != CommandError::none)
            finish_incoming(now, slot, wrong);
        else
            update_liveness(now, *peers_[m.peer]);
    } else {
        if (wrong != CommandError::none) m.error = wrong;
        ++(wrong == CommandError::none ? counters_.messages_received : counters_.messages_failed);
        push_event({.kind = wrong == CommandError::none ? EventKind::receive_finished : EventKind::receive_failed,
                    .error = wrong,
                    .peer = {m.peer},
                    .message = id,
                    .tag = m.tag});
    }
    for (auto& each : peers_) proceed_held(*each);
    return {id, CommandError::none};
}

CommandError Endpoint::release_blocks(Time now, MessageId id, std::uint32_t first, std::uint32_t count) {
    if (!known_outgoing(id.slot, id.generation)) return CommandError::unknown_message;
    OutgoingMessage& m = outgoing_[id.slot];
    if (m.told()) return CommandError::none;
    Peer& peer = *peers_[m.peer];
    if (!peer.up() || !m.gated || first > m.blocks() || count > m.blocks() - first)
        return CommandError::bad_release;
    m.release(first, count);
    if (m.state == OutgoingState::State::sending && !m.queue_link.linked) {
        // What was computed a moment ago lies in the processor's caches, and to copy it into a channel is to read it.
        enqueue(id.slot, is_trusted(peer.address));
        update_liveness(now, peer);
    }
    return CommandError::none;
}

CommandError Endpoint::cancel(Time now, MessageId id) {
    if (id.slot != UINT32_MAX && id.slot & incoming_bit) {
        const std::uint32_t slot = id.slot & ~incoming_bit;
        if (!known_incoming(slot, id.generation)) return CommandError::unknown_message;
        if (incoming_[slot].over()) return CommandError::message_over;
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
    // The receiver must be notified, or it would wait for the rest. The caller's memory is free at once.
    peer.session->sender.queues[m.traffic_class].remove(outgoing_, id.slot);
    m.state.apply(OutgoingState::Event::cancel);
    m.payload = nullptr;
    m.error = CommandError::cancelled;
    ++counters_.messages_failed;
    push_event({.kind = EventKind::send_failed,
                .error = m.error,
                .peer = {m.peer},
                .message = id,
                .tag = m.tag,
                .waited = now - m.since});
    peer.session->owed.cancel_ids.push_back(m.wire_id);
    queue_control(peer);
    return CommandError::none;
}

std::size_t Endpoint::discard_unexpected(Time now, const std::function<bool(std::uint64_t tag)>& unwanted) {
    std::size_t discarded = 0;
    for (std::uint32_t slot = 0; slot < incoming_.slots(); ++slot) {
        if (!incoming_.in_use(slot)) continue;
        IncomingMessage& m = incoming_[slot];
        if (!m.unasked() || !unwanted(m.tag)) continue;
        ++discarded;
        if (!m.over()) {
            finish_incoming(now, slot, CommandError::cancelled);
            continue;
        }
        m.state.apply(IncomingState::Event::drop);
        give_up_unexpected(slot);
        forget_incoming(slot);
    }
    // Even if none was dropped: messages on hold may be among the unwanted ones.
    for (auto& each : peers_) proceed_held(*each);
    return discarded;
}

KeptMessages Endpoint::kept_messages() const {
    KeptMessages kept;
    for (std::uint32_t slot = 0; slot < outgoing_.slots(); ++slot) kept.outgoing += outgoing_.in_use(slot);
    for (std::uint32_t slot = 0; slot < incoming_.slots(); ++slot) kept.incoming += incoming_.in_use(slot);
    kept.unexpected = unexpected_;
    return kept;
}

CommandError Endpoint::release(MessageId id) {
    if (id.slot != UINT32_MAX && id.slot & incoming_bit) {
        const std::uint32_t slot = id.slot & ~incoming_bit;
        if (!known_incoming(slot, id.generation)) return CommandError::unknown_message;
        IncomingMessage& m = incoming_[slot];
        if (!m.over()) return CommandError::message_not_over;
        m.released = true;
        forget_incoming(slot);
        return CommandError::none;
    }
    if (!known_outgoing(id.slot, id.generation)) return CommandError::unknown_message;
    OutgoingMessage& m = outgoing_[id.slot];
    if (m.state == OutgoingState::State::cancelling) {
        // Its failure was reported already; the slot is freed once the receiver knows.
        m.released = true;
        return CommandError::none;
    }
    if (!m.over()) return CommandError::message_not_over;
    outgoing_.give_back(id.slot);
    return CommandError::none;
}

CommandResult<MessageOutcome> Endpoint::outcome(MessageId id) const {
    MessageOutcome out;
    if (id.slot != UINT32_MAX && id.slot & incoming_bit) {
        const std::uint32_t slot = id.slot & ~incoming_bit;
        if (!known_incoming(slot, id.generation)) return {{}, CommandError::unknown_message};
        const IncomingMessage& m = incoming_[slot];
        if (!m.over()) return {{}, CommandError::message_not_over};
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

CommandError Endpoint::advance_key_epoch() {
    if (!config_.job_key) return CommandError::no_key;
    ++key_epoch_;
    for (auto& peer : peers_)
        if (peer->session) peer->session->keys.advance_send(config_, key_epoch_);
    return CommandError::none;
}

void Endpoint::close(Time now) {
    if (closed_) return;
    for (auto& peer : peers_) disconnect(now, {peer->index});
    // A receive from any peer belongs to no peer.
    for (std::uint32_t slot = 0; slot < incoming_.slots(); ++slot)
        if (incoming_.in_use(slot) && incoming_[slot].has_receive() && !incoming_[slot].over())
            finish_incoming(now, slot, CommandError::closed);
    closed_ = true;
}

// A message is first of its tag and its session is up: it may be sent.
void Endpoint::enqueue(std::uint32_t slot, bool front) {
    OutgoingMessage& m = outgoing_[slot];
    Peer& peer = *peers_[m.peer];
    if (m.state == OutgoingState::State::waiting) m.state.apply(OutgoingState::Event::start);
    if (m.state == OutgoingState::State::held) m.state.apply(OutgoingState::Event::proceed);
    // A message that waits for release_blocks() or for a first acknowledgement joins when it has something to send.
    if (!m.queue_link.linked && m.has_block_to_send()) {
        if (front)
            peer.session->sender.queues[m.traffic_class].push_front(outgoing_, slot);
        else
            peer.session->sender.queues[m.traffic_class].push_back(outgoing_, slot);
    }
    refresh(peer);
}

void Endpoint::start_next_of_tag(OutgoingMessage& message) {
    TagMap::Chain* chain = active_tags_.find(message.peer, message.tag);
    const std::uint32_t next = message.next_same_tag;
    if (next == UINT32_MAX) {
        active_tags_.erase(message.peer, message.tag);
        return;
    }
    chain->first = next;
    if (peers_[message.peer]->state == PeerState::State::established) enqueue(next, false);
}

// Removes the message from the session's queues, if it is in any.
void Endpoint::unqueue(Peer& peer, std::uint32_t slot) {
    if (!peer.session) return;
    SenderState& sender = peer.session->sender;
    sender.queues[outgoing_[slot].traffic_class].remove(outgoing_, slot);
    sender.started.remove(outgoing_, slot);
}

// The message of this id is over: the floor that the peer learns may rise, which frees the peer's memory of ids below
// it.
void Endpoint::retire_id(Peer& peer, std::uint32_t wire_id) {
    SenderState& sender = peer.session->sender;
    sender.ids[wire_id] = UINT32_MAX;
    std::uint32_t floor = sender.ids.base();
    while (floor != sender.ids.end() && sender.ids[floor] == UINT32_MAX) ++floor;
    sender.ids.advance(floor);
    if (sender.ids_exhausted) refresh(peer);
    // A stream in one direction has no other reason to send the floor, and the peer remembers ids until it learns it.
    if (floor - sender.floor_told >= untold_messages && peer.up()) {
        peer.session->owed.floor = true;
        queue_control(peer);
    }
}

// Reports the final event of a message, unless it was reported before (cancelled), and removes it from every queue.
void Endpoint::finish_outgoing(Time now, std::uint32_t slot, CommandError error) {
    OutgoingMessage& m = outgoing_[slot];
    Peer& peer = *peers_[m.peer];
    const bool told = m.state == OutgoingState::State::cancelling;
    const bool head = active_tags_.find(m.peer, m.tag)->first == slot;
    unqueue(peer, slot);
    peer.outgoing.remove(outgoing_, slot);
    if (m.wire_id != 0) retire_id(peer, m.wire_id);
    m.state.apply(OutgoingState::Event::finish);
    if (head) {
        start_next_of_tag(m);
    } else {
        // A waiting message was cancelled: unlink it from the middle of its chain.
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
        push_event({.kind = error == CommandError::none ? EventKind::send_finished : EventKind::send_failed,
                    .error = error,
                    .peer = {m.peer},
                    .message = outgoing_id(slot),
                    .tag = m.tag,
                    .waited = now - m.since});
    }
    update_liveness(now, peer);
}

void Endpoint::fail_all(Time now, Peer& peer, CommandError error) {
    // Failing the first message of a tag must not start the next one.
    peer.failing = true;
    while (!peer.outgoing.empty()) finish_outgoing(now, peer.outgoing.front(), error);
    while (!peer.posted.empty()) finish_incoming(now, peer.posted.front(), error);
    peer.failing = false;
}

// Nothing is left to report about messages that are over: the session ends.
void Endpoint::forget_outcomes(Peer& peer) {
    if (!peer.session) return;
    IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    for (std::uint32_t id = messages.base(); id != messages.end(); ++id) forget_outcome(messages[id]);
}

// The peer may return with another session, and so may this endpoint.
void Endpoint::end_session(Time now, Peer& peer) {
    if (peer.session) {
        forget_pieces(peer);
        peer.failing = true;
        // Messages that began to arrive while the goodbye was due.
        const IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
        for (std::uint32_t id = messages.base(); id != messages.end(); ++id)
            if (messages[id].state == IncomingIdState::State::active)
                finish_incoming(now, messages[id].slot, CommandError::closed);
        forget_outcomes(peer);
        // Messages sent since the goodbye was due wait for the next session; none of their bytes has left.
        for (std::uint32_t slot = peer.outgoing.front(); slot != Link::none;
             slot = OutgoingList::next(outgoing_, slot)) {
            unqueue(peer, slot);
            if (outgoing_[slot].state == OutgoingState::State::sending)
                outgoing_[slot].state.apply(OutgoingState::Event::suspend);
        }
        peer.session.reset();
        peer.failing = false;
    }
    peer.state.apply(PeerState::Event::end);
    peer.handshake = HandshakeState{};
    peer.handshake.own_session = new_session(peer);
    grants_.forget(peer.index);
    turns_.forget(peer.index);
    update_liveness(now, peer);
}

void Endpoint::peer_down(Time now, Peer& peer, CommandError error) {
    fail_all(now, peer, error);
    push_event(
        {.kind = EventKind::peer_down, .error = error, .peer = {peer.index}, .waited = now - peer.last_heard});
    end_session(now, peer);
}

PeerStatistics Endpoint::peer_statistics(PeerId id) const {
    PeerStatistics s;
    const Peer* peer = peer_at(id);
    if (peer == nullptr) return s;
    s.rank = peer->rank;
    s.established = peer->up();
    s.last_heard = peer->last_heard;
    s.rtt = peer->rtt.smoothed();
    s.rtt_min = peer->rtt.min();
    s.max_datagram_bytes = peer->datagram_bytes;
    if (!peer->session) return s;
    const SenderState& sender = peer->session->sender;
    s.queue_delay = sender.queue_delay;
    s.window = sender.congestion->window(sender.under_way());
    s.in_flight = sender.in_flight;
    s.credit = sender.credit;
    return s;
}

std::size_t Endpoint::path_statistics(PeerId id, std::span<PathStatistics> out) const {
    const Peer* peer = peer_at(id);
    return peer != nullptr && peer->session ? peer->session->sender.paths.statistics(out) : 0;
}

std::optional<PeerId> Endpoint::find_peer(std::uint32_t rank) const {
    for (const auto& peer : peers_)
        if (peer->rank == rank) return PeerId{peer->index};
    return std::nullopt;
}

std::uint32_t Endpoint::rank_of(PeerId id) const {
    const Peer* peer = peer_at(id);
    return peer ? peer->rank : UINT32_MAX;
}

const dlcp_address* Endpoint::address_of(PeerId id) const {
    const Peer* peer = peer_at(id);
    return peer ? &peer->address : nullptr;
}

bool Endpoint::established(PeerId id) const {
    const Peer* peer = peer_at(id);
    return peer && peer->up();
}

std::uint16_t Endpoint::block_bytes(PeerId id, std::uint16_t unit_bytes) const {
    const Peer* peer = peer_at(id);
    return in_units(peer ? peer->block_bytes : own_block_bytes(), unit_bytes);
}

std::uint16_t Endpoint::block_bytes_of(const Peer& peer, const SendCommand& c) {
    for (const std::uint16_t most : {peer.block_bytes, peer.former_block_bytes}) {
        const std::uint16_t block_bytes = in_units(most, c.unit_bytes);
        if (c.importance.empty() || c.importance.size() == wire::block_count(c.message_bytes, block_bytes))
            return block_bytes;
    }
    return 0;
}

bool Endpoint::importance_fits(const SendCommand& command) const {
    const Peer* peer = peer_at(command.peer);
    return peer != nullptr && block_bytes_of(*peer, command) != 0;
}

std::uint16_t Endpoint::block_bytes(MessageId id) const {
    return known_outgoing(id.slot, id.generation) ? outgoing_[id.slot].block_bytes() : std::uint16_t{0};
}

bool Endpoint::poll_event(Event& out) {
    if (events_.empty()) return false;
    out = events_.front();
    events_.pop();
    return true;
}

}  // namespace dlcp

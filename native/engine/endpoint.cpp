// Commands and getters of an endpoint. The protocol itself is in the parts that endpoint.hpp lists.
#include "engine/endpoint.hpp"

#include <algorithm>
#include <cstring>

namespace dlcp {

namespace {

// Wherever packets come out: the flags do not count.
bool same_place(const dlcp_address& a, const dlcp_address& b) {
    return a.length == b.length && std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

bool is_incoming(MessageId id) { return id.slot != UINT32_MAX && (id.slot & SharedState::incoming_bit) != 0; }

}  // namespace

Endpoint::Endpoint(const EndpointConfig& config, std::uint64_t seed, Time) : shared_(config, seed) {}

CommandResult<PeerId> Endpoint::connect(Time now, std::uint32_t rank, const dlcp_address& address) {
    if (shared_.closed) return {{}, CommandError::closed};
    if (rank == shared_.config.rank) return {{}, CommandError::own_rank};
    Peer* peer = shared_.find_rank(rank);
    if (peer) {
        if (!same_place(peer->address, address)) {
            // A peer that spoke first may be reachable at another address than it sends from. The address of a named
            // peer does not change while its session is up.
            if (peer->up() && !peer->learned) return {{}, CommandError::duplicate_rank};
            peer->address = address;
        }
    } else {
        if (shared_.peers.size() >= shared_.config.max_peers) return {{}, CommandError::too_many_peers};
        peer = &sessions_.new_peer(rank, address);
    }
    peer->learned = false;
    sessions_.start_if_idle(now, *peer);
    return {{peer->index}, CommandError::none};
}

CommandError Endpoint::disconnect(Time now, PeerId id) {
    Peer* peer = shared_.peer_at(id);
    if (!peer) return CommandError::unknown_peer;
    sessions_.disconnect(now, *peer);
    return CommandError::none;
}

CommandResult<MessageId> Endpoint::send(Time now, const SendCommand& command) {
    if (shared_.closed) return {{}, CommandError::closed};
    Peer* peer = shared_.peer_at(command.peer);
    if (!peer) return {{}, CommandError::unknown_peer};
    const auto [slot, error] = outgoing_.add(now, *peer, command);
    if (error != CommandError::none) return {{}, error};
    sessions_.start_if_idle(now, *peer);
    if (peer->up() && outgoing_.first_of_tag(slot)) outgoing_.enqueue(slot, false);
    liveness_.update(now, *peer);
    return {shared_.outgoing_id(slot), CommandError::none};
}

CommandResult<MessageId> Endpoint::receive(Time now, const ReceiveCommand& command) {
    if (shared_.closed) return {{}, CommandError::closed};
    Peer* peer = nullptr;
    if (!(command.peer == any_peer)) {
        peer = shared_.peer_at(command.peer);
        if (!peer) return {{}, CommandError::unknown_peer};
    }
    // What is here needs no peer: it may have left.
    if (const std::optional<MessageId> here = incoming_.claim(now, peer, command))
        return {*here, CommandError::none};
    if (peer) sessions_.start_if_idle(now, *peer);
    return incoming_.post(now, peer, command);
}

CommandResult<MessageId> Endpoint::claim(Time now, const ReceiveCommand& command) {
    if (shared_.closed) return {{}, CommandError::closed};
    Peer* peer = shared_.peer_at(command.peer);
    if (!peer && !(command.peer == any_peer)) return {{}, CommandError::unknown_peer};
    const std::optional<MessageId> here = incoming_.claim(now, peer, command);
    return here ? CommandResult<MessageId>{*here} : CommandResult<MessageId>{{}, CommandError::unknown_message};
}

CommandError Endpoint::release_blocks(Time now, MessageId id, std::uint32_t first, std::uint32_t count) {
    return outgoing_.release_blocks(now, id, first, count);
}

CommandError Endpoint::cancel(Time now, MessageId id) {
    return is_incoming(id) ? incoming_.cancel(now, id) : outgoing_.cancel(now, id);
}

std::size_t Endpoint::discard_unexpected(Time now, const std::function<bool(std::uint64_t tag)>& unwanted) {
    return incoming_.discard_unexpected(now, unwanted);
}

CommandError Endpoint::release(MessageId id) {
    return is_incoming(id) ? incoming_.release(id) : outgoing_.release(id);
}

CommandResult<MessageOutcome> Endpoint::outcome(MessageId id) const {
    return is_incoming(id) ? incoming_.outcome(id) : outgoing_.outcome(id);
}

void Endpoint::handle_packets(Time now, std::span<const dlcp_packet> packets) {
    arrivals_.handle_packets(now, packets);
}

std::size_t Endpoint::poll_transmit(Time now, std::span<dlcp_packet> slots) {
    std::size_t n = pieces_.pending() ? pieces_.send(now, slots) : 0;
    if (!shared_.control_queue.empty()) n += control_.poll(now, slots.subspan(n));
    return shared_.ready_classes != 0 ? n + data_.poll(now, slots.subspan(n)) : n;
}

KeptMessages Endpoint::kept_messages() const {
    KeptMessages kept;
    for (std::uint32_t slot = 0; slot < shared_.outgoing.slots(); ++slot)
        kept.outgoing += shared_.outgoing.in_use(slot);
    for (std::uint32_t slot = 0; slot < shared_.incoming.slots(); ++slot)
        kept.incoming += shared_.incoming.in_use(slot);
    kept.unexpected = incoming_.unexpected_bytes();
    return kept;
}

CommandError Endpoint::advance_key_epoch() {
    if (!shared_.config.job_key) return CommandError::no_key;
    ++shared_.key_epoch;
    for (auto& peer : shared_.peers)
        if (peer->session) peer->session->keys.advance_send(shared_.config, shared_.key_epoch);
    return CommandError::none;
}

void Endpoint::close(Time now) {
    if (shared_.closed) return;
    for (auto& peer : shared_.peers) disconnect(now, {peer->index});
    incoming_.close_receives_from_any(now);
    shared_.closed = true;
}

PeerStatistics Endpoint::peer_statistics(PeerId id) const {
    PeerStatistics s;
    const Peer* peer = shared_.peer_at(id);
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
    s.window = sender.congestion->window();
    s.in_flight = sender.in_flight;
    s.credit = sender.credit;
    return s;
}

std::size_t Endpoint::path_statistics(PeerId id, std::span<PathStatistics> out) const {
    const Peer* peer = shared_.peer_at(id);
    return peer != nullptr && peer->session ? peer->session->sender.paths.statistics(out) : 0;
}

std::optional<PeerId> Endpoint::find_peer(std::uint32_t rank) const {
    for (const auto& peer : shared_.peers)
        if (peer->rank == rank) return PeerId{peer->index};
    return std::nullopt;
}

std::uint32_t Endpoint::rank_of(PeerId id) const {
    const Peer* peer = shared_.peer_at(id);
    return peer ? peer->rank : UINT32_MAX;
}

CommandError Endpoint::ended_by(PeerId id) const {
    const Peer* peer = shared_.peer_at(id);
    return peer ? peer->ended_by : CommandError::none;
}

const dlcp_address* Endpoint::address_of(PeerId id) const {
    const Peer* peer = shared_.peer_at(id);
    return peer ? &peer->address : nullptr;
}

bool Endpoint::established(PeerId id) const {
    const Peer* peer = shared_.peer_at(id);
    return peer && peer->up();
}

std::uint16_t Endpoint::block_bytes(PeerId id, std::uint16_t unit_bytes) const {
    const Peer* peer = shared_.peer_at(id);
    return SharedState::in_units(peer ? peer->block_bytes : shared_.own_block_bytes(), unit_bytes);
}

std::uint16_t Endpoint::block_bytes(MessageId id) const {
    return shared_.known_outgoing(id.slot, id.generation) ? shared_.outgoing[id.slot].block_bytes()
                                                          : std::uint16_t{0};
}

bool Endpoint::importance_fits(const SendCommand& command) const {
    const Peer* peer = shared_.peer_at(command.peer);
    return peer != nullptr && Outgoing::block_bytes_of(*peer, command) != 0;
}

bool Endpoint::poll_event(Event& out) {
    if (shared_.events.empty()) return false;
    out = shared_.events.front();
    shared_.events.pop();
    return true;
}

bool Endpoint::has_queued() const {
    return std::any_of(shared_.peers.begin(), shared_.peers.end(),
                       [](const auto& peer) { return peer->session && peer->session->sender.has_queued(); });
}

}  // namespace dlcp

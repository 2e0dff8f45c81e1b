// Timers: which part acts when a time has come.
#include <algorithm>

#include "engine/endpoint.hpp"

namespace dlcp {

void Endpoint::probe(PeerId id) {
    Peer* peer = shared_.peer_at(id);
    if (peer == nullptr || !peer->up()) return;
    liveness_.ask(*peer);
    shared_.queue_control(*peer);
}

// A peer that owes something and is silent for peer_timeout is dead.
void Endpoint::fire(Time now, Peer& peer) {
    shared_.peer_timers.set(peer.index, time_never);
    const Time last_sign = std::max(peer.last_heard, peer.waiting_since);
    if (peer.waiting && now - last_sign >= shared_.config.peer_timeout) {
        sessions_.peer_down(now, peer, CommandError::peer_timeout);
        return;
    }
    if (peer.handshake.at <= now) {
        peer.handshake.at = time_never;
        peer.handshake.due = peer.state == PeerState::State::connecting;
        shared_.queue_control(peer);
    }
    if (peer.session) fire_session(now, peer);
    shared_.arm(peer);
}

void Endpoint::fire_session(Time now, Peer& peer) {
    SenderState& sender = peer.session->sender;
    ReceiverState& receiver = peer.session->receiver;
    if (receiver.ack_at <= now) {
        receiver.ack_at = time_never;
        peer.session->owed.ack = true;
        shared_.queue_control(peer);
    }
    if (sender.loss_at <= now) {
        recovery_.detect_losses(now, peer);
        shared_.refresh(peer);
    }
    if (sender.pace_at <= now) {
        sender.pace_at = time_never;
        shared_.refresh(peer);
    }
    if (sender.turn_until <= now) recovery_.end_turns(peer);
    if (sender.tests_at <= now) recovery_.end_size_tests(now, peer);
    if (sender.probe_at <= now) recovery_.probe_unanswered(now, peer);
    if (peer.keepalive_at <= now) {
        ++peer.keepalive_tries;
        liveness_.ask(peer);
        shared_.queue_control(peer);
        liveness_.update(now, peer);
    }
}

void Endpoint::handle_timer(Time now) {
    while (shared_.peer_timers.next() <= now) fire(now, *shared_.peers[shared_.peer_timers.top()]);
    incoming_.handle_timer(now);
    credit_.handle_timer(now);
}

Time Endpoint::next_deadline() const {
    return std::min({shared_.peer_timers.next(), shared_.message_timers.next(), credit_.next_deadline()});
}

}  // namespace dlcp

#include "engine/liveness.hpp"

#include <algorithm>

namespace dlcp {

namespace {

// Where more than a quarter of the packets get lost (in 2^-16) and no queue stands, silence is an accident.
constexpr std::int32_t chance_loss_share = (1 << 16) / 4;

// A silent peer that owes a message is probed after a fifth of its timeout, and then every fortieth: 32 probes, so that heavy
// loss alone does not end the session. For the first ten seconds as if its timeout were ten seconds at most.
constexpr std::int64_t keepalive_parts = 40;
constexpr std::int64_t keepalive_silence = keepalive_parts / 5;
constexpr Duration keepalive_longest = seconds(10);

}  // namespace

bool Liveness::loses_by_chance(const Peer& peer) const {
    return peer.loss_share > chance_loss_share && peer.session->sender.queue_delay < shared_.config.target_delay;
}

Duration Liveness::probe_timeout(const Peer& peer) const {
    const Duration base = peer.rtt.timeout(shared_.config.min_rto) + shared_.config.max_ack_delay;
    // The doubling is capped, not the estimate: an answer that takes longer than max_rto is still awaited.
    return std::min(base * (1LL << std::min(peer.session->sender.timeouts, most_backoff(peer))),
                    std::max(shared_.config.max_rto, base));
}

// Something was sent that the peer has not fully acknowledged. A message that waits for blocks to be released does not
// count once everything sent of it is acknowledged.
bool Liveness::owed_answer(const Peer& peer) const {
    const SenderState& sender = peer.session->sender;
    if (sender.awaiting > 0) return true;
    for (std::uint32_t m = sender.started.front(); m != Link::none; m = StartedList::next(shared_.outgoing, m))
        if (!shared_.outgoing[m].waits_for_release()) return true;
    return false;
}

void Liveness::update(Time now, Peer& peer) {
    const bool sending = peer.up() && owed_answer(peer);
    const bool connecting = peer.state == PeerState::State::connecting;
    const bool wants = sending || !peer.posted.empty() || !peer.outgoing.empty() || connecting;
    if (wants && !peer.waiting) peer.waiting_since = now;
    peer.waiting = wants;
    peer.keepalive_at = time_never;
    const Time last_sign = std::max(peer.last_heard, peer.waiting_since);
    if (!peer.up()) {
        if (peer.session) peer.session->sender.probe_at = time_never;
        if (connecting) peer.keepalive_at = last_sign + shared_.config.peer_timeout;
    } else {
        SenderState& sender = peer.session->sender;
        sender.probe_at =
            sending ? std::max(sender.last_progress, peer.waiting_since) + probe_timeout(peer) : time_never;
        // Receives alone send nothing: probe the peer's liveness now and then.
        const std::int64_t parts = keepalive_silence + peer.keepalive_tries;
        const Duration soon = std::min(shared_.config.peer_timeout, keepalive_longest);
        const Duration silence = parts <= keepalive_parts ? soon * parts / keepalive_parts
                                                          : soon + shared_.config.peer_timeout *
                                                                       (parts - keepalive_parts) / keepalive_parts;
        if (wants) peer.keepalive_at = last_sign + std::min(silence, shared_.config.peer_timeout);
    }
    shared_.arm(peer);
}

void Liveness::ask(Peer& peer) {
    Owed& owed = peer.session->owed;
    owed.probe = true;
    owed.cancel_ids.clear();
    for (std::uint32_t m = peer.session->sender.started.front(); m != Link::none;
         m = StartedList::next(shared_.outgoing, m))
        if (shared_.outgoing[m].state == OutgoingState::State::cancelling)
            owed.cancel_ids.push_back(shared_.outgoing[m].wire_id);
}

}  // namespace dlcp

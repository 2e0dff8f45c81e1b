// Timers: when to ask what arrived, whether the peer is alive, and when to give it up.
//
// If nothing is heard, a probe asks (RFC 9002's probe timeout, on RFC 6298's estimate). After several unanswered probes
// the bytes in flight are sent again without waiting for an answer. A peer that owes something and is silent for
// peer_timeout is dead.
#include <algorithm>
#include <utility>

#include "engine/endpoint.hpp"

namespace dlcp {

namespace {

// Probe timeouts double, up to 2^6 of the first (and max_rto).
constexpr std::uint32_t most_backoff = 6;

// Where more than a quarter of the packets get lost and no queue stands, silence is an accident: waiting longer helps nobody.
// Then timeouts double once, and an unanswered probe is sent three times.
constexpr std::int32_t chance_loss_share = (1 << 16) / 4;
constexpr std::uint32_t most_backoff_by_chance = 1;
constexpr std::uint8_t further_probes = 2;

// After this many unanswered probes, everything in flight counts as lost.
constexpr std::uint32_t unanswered_probes = 1;

// A silent peer that owes a message is probed after a fifth of its timeout, and then every fortieth: 32 probes, so that heavy
// loss alone does not end the session. For the first ten seconds as if its timeout were ten seconds at most.
constexpr std::int64_t keepalive_parts = 40;
constexpr std::int64_t keepalive_silence = keepalive_parts / 5;
constexpr Duration keepalive_longest = seconds(10);

}  // namespace

Duration Endpoint::probe_timeout(const Peer& peer) const {
    const Duration base = peer.rtt.timeout(config_.min_rto) + config_.max_ack_delay;
    const std::uint32_t most = loses_by_chance(peer) ? most_backoff_by_chance : most_backoff;
    // The doubling is capped, not the estimate: an answer that takes longer than max_rto is still awaited.
    return std::min(base * (1LL << std::min(peer.session->sender.timeouts, most)),
                    std::max(config_.max_rto, base));
}

// Many packets to this peer are lost, but not in a queue.
bool Endpoint::loses_by_chance(const Peer& peer) const {
    return peer.loss_share > chance_loss_share && peer.session->sender.queue_delay < config_.target_delay;
}

// Something was sent that the peer has not fully acknowledged. A message that waits for blocks to be released does not
// count once everything sent of it is acknowledged.
bool Endpoint::owed_answer(const Peer& peer) const {
    const SenderState& sender = peer.session->sender;
    if (sender.awaiting > 0) return true;
    for (std::uint32_t m = sender.started.front(); m != Link::none; m = StartedList::next(outgoing_, m))
        if (!outgoing_[m].waits_for_release()) return true;
    return false;
}

// Whether the peer owes an answer, by when, and since when. Call after every change of what is in flight.
void Endpoint::update_liveness(Time now, Peer& peer) {
    const bool sending = peer.up() && owed_answer(peer);
    const bool connecting = peer.state == PeerState::State::connecting;
    const bool wants = sending || !peer.posted.empty() || !peer.outgoing.empty() || connecting;
    if (wants && !peer.waiting) peer.waiting_since = now;
    peer.waiting = wants;
    peer.keepalive_at = time_never;
    const Time last_sign = std::max(peer.last_heard, peer.waiting_since);
    if (!peer.up()) {
        if (peer.session) peer.session->sender.probe_at = time_never;
        if (connecting) peer.keepalive_at = last_sign + config_.peer_timeout;
    } else {
        SenderState& sender = peer.session->sender;
        sender.probe_at =
            sending ? std::max(sender.last_progress, peer.waiting_since) + probe_timeout(peer) : time_never;
        // Receives alone send nothing: probe the peer's liveness now and then.
        const std::int64_t parts = keepalive_silence + peer.keepalive_tries;
        const Duration soon = std::min(config_.peer_timeout, keepalive_longest);
        const Duration silence = parts <= keepalive_parts
                                     ? soon * parts / keepalive_parts
                                     : soon + config_.peer_timeout * (parts - keepalive_parts) / keepalive_parts;
        if (wants) peer.keepalive_at = last_sign + std::min(silence, config_.peer_timeout);
        if (sending) update_demand(peer);
    }
    arm(peer);
}

// Asks the receiver to grant what congestion control wants beyond earlier demands.
void Endpoint::update_demand(Peer& peer) {
    SenderState& sender = peer.session->sender;
    if (!sender.congestion->needs_grants()) return;
    Bytes backlog{0};
    for (const SendQueue& queue : sender.queues)
        queue.for_each(outgoing_, [&](std::uint32_t m) {
            backlog += Bytes{outgoing_[m].backlog_bytes() * 17 / 16};  // headers and tags
        });
    const Bytes wanted = sender.congestion->demand(sender.under_way(), backlog);
    if (wanted <= sender.demanded) return;
    sender.demanded = wanted;
    peer.session->owed.demand = true;
    queue_control(peer);
}

// Puts a probe into the next control packet. A message being cancelled is probed by repeating the cancel frame.
void Endpoint::ask(Peer& peer) {
    Owed& owed = peer.session->owed;
    owed.probe = true;
    owed.cancel_ids.clear();
    for (std::uint32_t m = peer.session->sender.started.front(); m != Link::none;
         m = StartedList::next(outgoing_, m))
        if (outgoing_[m].state == OutgoingState::State::cancelling)
            owed.cancel_ids.push_back(outgoing_[m].wire_id);
}

void Endpoint::probe(PeerId id) {
    Peer* peer = peer_at(id);
    if (peer == nullptr || !peer->up()) return;
    ask(*peer);
    queue_control(*peer);
}

void Endpoint::arm(Peer& peer) {
    Time next = std::min(peer.handshake.at, peer.keepalive_at);
    if (peer.session) next = std::min({next, peer.session->sender.next_timer(), peer.session->receiver.ack_at});
    // A later time is noticed when the earlier one comes: most timers are postponed before they fire.
    if (next < peer_timers_.at(peer.index)) peer_timers_.set(peer.index, next);
}

void Endpoint::fire(Time now, Peer& peer) {
    peer_timers_.set(peer.index, time_never);
    const Time last_sign = std::max(peer.last_heard, peer.waiting_since);
    if (peer.waiting && now - last_sign >= config_.peer_timeout) {
        peer_down(now, peer, CommandError::peer_timeout);
        return;
    }
    if (peer.handshake.at <= now) {
        peer.handshake.at = time_never;
        peer.handshake.due = peer.state == PeerState::State::connecting;
        queue_control(peer);
    }
    if (peer.session) fire_session(now, peer);
    arm(peer);
}

void Endpoint::fire_session(Time now, Peer& peer) {
    SenderState& sender = peer.session->sender;
    ReceiverState& receiver = peer.session->receiver;
    if (receiver.ack_at <= now) {
        receiver.ack_at = time_never;
        peer.session->owed.ack = true;
        queue_control(peer);
    }
    if (sender.loss_at <= now) {
        detect_losses(now, peer);
        refresh(peer);
    }
    if (sender.pace_at <= now) {
        sender.pace_at = time_never;
        refresh(peer);
    }
    if (sender.turn_until <= now) end_turns(peer);
    if (sender.tests_at <= now) end_size_tests(now, peer);
    if (sender.probe_at <= now) probe_unanswered(now, peer);
    if (peer.keepalive_at <= now) {
        ++peer.keepalive_tries;
        ask(peer);
        queue_control(peer);
        update_liveness(now, peer);
    }
}

// Nothing was heard for a probe timeout. The first probe follows the data that it asks about, through the same queues:
// if these are long, the data is acknowledged before it, and if not, what its answer lacks is lost. A probe that overtook
// them would be answered while they wait, and prove nothing.
void Endpoint::probe_unanswered(Time now, Peer& peer) {
    SenderState& sender = peer.session->sender;
    ++sender.timeouts;
    ask(peer);
    if (sender.timeouts > unanswered_probes && loses_by_chance(peer))
        peer.session->owed.further_probes = further_probes;
    if (sender.timeouts <= unanswered_probes && sender.awaiting > 0)
        peer.session->owed.probe_of_data = std::exchange(peer.session->owed.probe, false);
    peer.session->owed.demand = sender.demanded > Bytes{0};  // the last one may have been lost
    sender.last_progress = now;
    // With nothing in flight the peer holds a message, or has blocks of it to be released: no sign of congestion.
    if (sender.awaiting > 0) sender.congestion->on_timeout(sender.timeouts);
    // A channel loses nothing: its peer is busy, and sending again would make it busier.
    if (sender.timeouts > unanswered_probes && !is_trusted(peer.address)) {
        // Where probes and answers are lost too, waiting for one to get through costs more than sending again.
        // A peer that was not scheduled for so long before is not sent everything twice. But where acknowledgements are
        // lost they are late by the probes' own intervals, and waiting for longer than these teaches nothing.
        const Duration estimate = peer.rtt.timeout(config_.min_rto);
        const std::uint32_t most = loses_by_chance(peer) ? most_backoff_by_chance : most_backoff;
        const Duration overdue = std::clamp(peer.late_answers.at(now), estimate, estimate * (1LL << most));
        for (std::uint64_t n = sender.sent.find(0); n != sender.sent.next(); n = sender.sent.find(n + 1))
            if (!sender.sent[n].lost() && now - sender.sent[n].sent_at >= overdue)
                declare_lost(peer, n, SentPacket::Loss::overdue);
        judge_paths(now, peer);  // what all died on one path shows nowhere else
        refresh(peer);
    }
    queue_control(peer);
    update_liveness(now, peer);
}

void Endpoint::handle_timer(Time now) {
    while (peer_timers_.next() <= now) fire(now, *peers_[peer_timers_.top()]);
    while (message_timers_.next() <= now) {
        const std::uint32_t slot = message_timers_.top();
        message_timers_.set(slot, time_never);
        end_if_possible(now, slot);
    }
    for (std::size_t n = 0; n < peers_.size() && grants_.next() <= now; ++n) {
        const std::uint32_t index = grants_.grant(now);
        if (index == GrantScheduler::none) break;
        peers_[index]->session->owed.grant = true;
        queue_control(*peers_[index]);
    }
    if (turns_.next() <= now) give_turns(now);
}

void Endpoint::give_turns(Time now) {
    told_.clear();
    turns_.decide(now, told_);
    for (const std::uint32_t index : told_) {
        Peer& peer = *peers_[index];
        if (!peer.up()) continue;
        peer.session->owed.ack = true;
        queue_control(peer);
    }
}

Time Endpoint::next_deadline() const {
    return std::min({peer_timers_.next(), message_timers_.next(), grants_.next(), turns_.next()});
}

}  // namespace dlcp

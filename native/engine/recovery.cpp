// Acknowledgements, losses and timeouts: what became of each packet, and when to ask.
//
// A packet is lost when a later packet of its lane (path and class) has been acknowledged by more than the lane's
// tolerance, when one of another lane that was sent a reordering window later has been (RFC 8985), when it is overdue
// while later packets have been acknowledged, or when a trimmed notice names it. If
// nothing is heard at all, a probe asks (RFC 9002's probe timeout, on RFC 6298's estimate). A lost packet is watched
// for a while: its late acknowledgement widens the tolerance. When probe after probe goes unanswered, what is in flight
// is sent again without waiting for the answer.
#include <algorithm>

#include "engine/bytes.hpp"
#include "engine/endpoint_impl.hpp"

namespace dlcp {

namespace {

// The tolerance doubles per spurious loss, up to a fraction of the window.
constexpr std::uint64_t most_lane_tolerance = PacketWindow::width / 8;
// So does the time by which a packet may overtake one of another lane. Beyond this only the estimate's deadline counts.
constexpr Duration most_reorder_window = seconds(1);

// Probe timeouts double, up to 2^6 of the first (and max_rto).
constexpr std::uint32_t most_backoff = 6;

// Probes without an answer after which what is in flight counts as lost.
constexpr std::uint32_t unanswered_probes = 1;

// A peer that owes us a message is asked whether it is there after a fifth of its timeout in silence, and from then on
// every fortieth: 32 questions, so that heavy loss alone does not end it.
constexpr std::int64_t keepalive_parts = 40;
constexpr std::int64_t keepalive_silence = keepalive_parts / 5;

}  // namespace

Duration Endpoint::Impl::probe_timeout(const Peer& peer) const {
    const Duration base = peer.rtt.timeout(config_.min_rto) + config_.max_ack_delay;
    // The cap is on the doubling: an answer that takes longer than max_rto is still waited for.
    return std::min(base * (1LL << std::min(peer.timeouts, most_backoff)), std::max(config_.max_rto, base));
}

void Endpoint::Impl::declare_lost(Peer& peer, std::uint64_t number) {
    SentPacket& p = peer.sent[number];
    p.lost = true;
    peer.paths.on_lost(p.path);
    if (p.message_slot == SentPacket::no_message) return;
    --peer.awaiting;
    peer.in_flight -= Bytes{p.bytes};
    peer.lost_unreported += Bytes{p.bytes};
    ++counters_.lost_packets;
    if (!outgoing_.in_use(p.message_slot, p.message_generation)) return;
    OutgoingMessage& m = outgoing_[p.message_slot];
    if (m.state != OutgoingMessage::State::sending && m.state != OutgoingMessage::State::held) return;
    m.on_lost(p.block);
    // Older than what waits: to the front.
    if (m.state != OutgoingMessage::State::sending) return;
    if (m.has_block_to_send()) {
        enqueue(p.message_slot, true);
    } else if (m.first_pass_over()) {
        // Nothing will follow, and it may have been the packet that said so.
        ask(peer);
        queue_control(peer);
    }
}

void Endpoint::Impl::handle_ack(Time now, Peer& peer, const wire::Ack& ack) {
    if (ack.largest >= peer.sent.next() || ack.words == 0) {
        ++counters_.inconsistent;  // acknowledges what was never sent
        return;
    }
    AckSample sample;
    sample.now = now;
    sample.in_flight = peer.in_flight;
    bool progress = false;
    const std::uint64_t covered = std::uint64_t{ack.words} * 64;
    const std::uint64_t first = ack.largest + 1 >= covered ? ack.largest + 1 - covered : 0;
    std::uint64_t newest_sent = 0;
    for (std::uint64_t n = peer.sent.find(first); n <= ack.largest; n = peer.sent.find(n + 1)) {
        const std::uint64_t back = ack.largest - n;
        if (!(wire::load64(ack.received + back / 64 * 8) >> (back % 64) & 1)) continue;
        const bool ce = ack.ce != nullptr && (wire::load64(ack.ce + back / 64 * 8) >> (back % 64) & 1);
        SentPacket& p = peer.sent[n];
        peer.sent.resolve(n);
        progress = true;
        newest_sent = n;
        peer.newest_acked_sent_at = std::max(peer.newest_acked_sent_at, p.sent_at);
        if (n == ack.largest) {
            const Duration rtt = now - p.sent_at - nanoseconds(ack.ack_delay_ns);
            peer.paths.on_rtt(p.path, rtt);
            peer.rtt.sample(rtt);
        }
        std::uint64_t& lane = peer.lane_acked[std::size_t{p.traffic_class} * config_.paths + p.path];
        lane = std::max(lane, n + 1);
        peer.paths.on_acked(p.path, ce);
        if (p.lost) {
            ++counters_.spurious_losses;
            peer.lane_tolerance = std::min(peer.lane_tolerance * 2, most_lane_tolerance);
            peer.reorder_window = std::min(peer.reorder_window * 2, most_reorder_window);
        }
        if (p.message_slot == SentPacket::no_message) continue;
        if (!p.lost) {
            peer.in_flight -= Bytes{p.bytes};
            --peer.awaiting;
        }
        ++counters_.acked_packets;
        ++sample.acked_packets;
        sample.acked += Bytes{p.bytes};
        sample.ce_packets += ce;
        if (outgoing_.in_use(p.message_slot, p.message_generation)) {
            OutgoingMessage& m = outgoing_[p.message_slot];
            if (!m.told()) {
                const bool first = !m.taken();
                m.on_acked(p.block);
                if (first && m.state == OutgoingMessage::State::sending) enqueue(p.message_slot, false);
            }
        }
    }
    peer.credit = Bytes{ack.credit_bytes};
    if (progress) {
        peer.largest_acked = std::max(peer.largest_acked, newest_sent + 1);
        end_round(peer, newest_sent, sample);
    }
    if (ack.queue_delay_ns > 0) {
        peer.queue_delay = nanoseconds(ack.queue_delay_ns - 1);
        sample.queue_delay = peer.queue_delay;
    }
    detect_losses(now, peer);
    sample.lost = peer.lost_unreported;
    peer.lost_unreported = Bytes{0};
    note_loss_share(peer, sample);
    // An answer that tells nothing about data is no progress: what is held at the peer is asked about less and less often.
    if (sample.acked_packets > 0 || sample.lost > Bytes{0}) {
        peer.timeouts = 0;
        peer.last_progress = now;
    }
    sample.rtt = peer.rtt.smoothed();
    report(peer, sample);
    if (peer.paths.due()) judge_paths(now, peer);
    refresh(peer);
    update_liveness(now, peer);
}

// A moving average over some 256 packets.
void Endpoint::Impl::note_loss_share(Peer& peer, const AckSample& sample) {
    const auto lost = static_cast<std::int64_t>(sample.lost.value / peer.datagram_bytes);
    const std::int64_t packets = std::min<std::int64_t>(sample.acked_packets + lost, 64);
    if (packets == 0) return;
    const std::int64_t share = (lost << 16) / (sample.acked_packets + lost);
    peer.loss_share += static_cast<std::int32_t>((share - peer.loss_share) * packets / 256);
}

// Leaves bad paths and takes back good ones, and tells the application.
void Endpoint::Impl::judge_paths(Time now, Peer& peer) {
    path_changes_.clear();
    peer.paths.update(now, peer.rtt.smoothed(), path_changes_);
    for (const PathSet::Change& change : path_changes_)
        push_event({change.up ? EventKind::path_up : EventKind::path_down,
                    CommandError::none,
                    {peer.index},
                    {},
                    0,
                    change.path,
                    {0}});
}

// Tells congestion control, and paces by its answer.
void Endpoint::Impl::report(Peer& peer, const AckSample& sample) {
    peer.congestion->on_ack(sample);
    // A burst is one run, or what the timer's granularity makes of the rate. By the round trip as it is: while a long queue
    // goes, the smoothed one lags, and who is paced by it measures so seldom that it goes on lagging.
    peer.pacer.set(sample.now, peer.congestion->pacing_rate(std::min(peer.rtt.smoothed(), peer.rtt.latest())),
                   Bytes{std::uint64_t{peer.datagram_bytes} * config_.run_packets * 2}, config_.timer_granularity);
}

void Endpoint::Impl::end_round(Peer& peer, std::uint64_t newest, AckSample& sample) {
    if (newest < peer.round_end) return;
    sample.round_over = true;
    peer.round_end = peer.sent.next();
}

// What a switch cut is sent again at once. It is congestion as well, and if everything is cut the only word of it.
void Endpoint::Impl::handle_trimmed(Time now, Peer& peer, const std::uint8_t* numbers, std::size_t count) {
    AckSample sample;
    sample.now = now;
    sample.in_flight = peer.in_flight;
    sample.rtt = peer.rtt.smoothed();
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t number = wire::load64(numbers + 8 * i);
        if (!peer.sent.tracked(number) || peer.sent[number].lost) continue;
        declare_lost(peer, number);
        end_round(peer, number, sample);
    }
    sample.lost = peer.lost_unreported;
    peer.lost_unreported = Bytes{0};
    report(peer, sample);
    refresh(peer);
}

void Endpoint::Impl::detect_losses(Time now, Peer& peer) {
    peer.loss_at = time_never;
    if (peer.largest_acked == 0) return;
    const Duration overdue = peer.rtt.timeout(config_.min_rto);
    peer.reorder_window = std::max(peer.reorder_window, std::max(config_.min_rto, peer.rtt.min() / 4));
    for (std::uint64_t n = peer.sent.find(0); n + 1 < peer.largest_acked; n = peer.sent.find(n + 1)) {
        SentPacket& p = peer.sent[n];
        if (p.lost) continue;
        const std::uint64_t lane = peer.lane_acked[std::size_t{p.traffic_class} * config_.paths + p.path];
        if (lane > n + peer.lane_tolerance || now - p.sent_at >= overdue ||
            peer.newest_acked_sent_at - p.sent_at >= peer.reorder_window)
            declare_lost(peer, n);
        else
            peer.loss_at = std::min(peer.loss_at, p.sent_at + overdue);
    }
    peer.sent.trim();
}

// Something was sent that the peer has not answered for in full. A message that waits for blocks to be released has no
// such answer outstanding once what was sent of it is acknowledged.
bool Endpoint::Impl::owed_answer(const Peer& peer) const {
    if (peer.awaiting > 0) return true;
    for (std::uint32_t m = peer.started.front(); m != Link::none; m = StartedList::next(outgoing_, m))
        if (!outgoing_[m].waits_for_release()) return true;
    return false;
}

// Is an answer owed, by when, and since when? Call after anything that changes what is under way.
void Endpoint::Impl::update_liveness(Time now, Peer& peer) {
    const bool sending = peer.state == Peer::State::established && owed_answer(peer);
    const bool wants =
        sending || !peer.posted.empty() || !peer.outgoing.empty() || peer.state == Peer::State::connecting;
    if (wants && !peer.waiting) peer.waiting_since = now;
    peer.waiting = wants;
    if (peer.state != Peer::State::established) {
        peer.probe_at = peer.keepalive_at = time_never;
        if (peer.state == Peer::State::connecting)
            peer.keepalive_at = std::max(peer.last_heard, peer.waiting_since) + config_.peer_timeout;
    } else {
        peer.probe_at =
            sending ? std::max(peer.last_progress, peer.waiting_since) + probe_timeout(peer) : time_never;
        // Receives alone send nothing: ask now and then whether the peer is there at all.
        peer.keepalive_at =
            wants ? std::max(peer.last_heard, peer.waiting_since) +
                        config_.peer_timeout *
                            std::min<std::int64_t>(keepalive_silence + peer.keepalive_tries, keepalive_parts) /
                            keepalive_parts
                  : time_never;

        // Credit: say how much is wanted beyond what was said.
        if (config_.congestion == CongestionAlgorithm::credit && sending) {
            std::uint64_t wanted = peer.sent_total.value;
            for (const SendQueue& queue : peer.queues)
                for (std::uint32_t m = queue.front(); m != Link::none; m = SendQueue::next(outgoing_, m))
                    wanted += outgoing_[m].backlog_bytes() * 17 / 16;  // headers and tags
            wanted -= std::min(wanted, config_.initial_window.value);
            if (wanted > peer.backlog_told) {
                peer.backlog_told = wanted;
                peer.demand_due = true;
                queue_control(peer);
            }
        }
    }
    arm(peer);
}

// A probe in the next control packet. What is being cancelled is asked for by saying so again.
void Endpoint::Impl::ask(Peer& peer) {
    peer.probe_due = true;
    peer.cancel_ids.clear();
    for (std::uint32_t m = peer.started.front(); m != Link::none; m = StartedList::next(outgoing_, m))
        if (outgoing_[m].state == OutgoingMessage::State::cancelling)
            peer.cancel_ids.push_back(outgoing_[m].wire_id);
}

void Endpoint::Impl::probe(Peer& peer) {
    if (peer.state != Peer::State::established) return;
    ask(peer);
    queue_control(peer);
}

void Endpoint::Impl::arm(Peer& peer) {
    const Time next =
        std::min({peer.hello_at, peer.probe_at, peer.loss_at, peer.pace_at, peer.ack_at, peer.keepalive_at});
    // Later is found when the earlier time comes: most timers are pushed back before they fire.
    if (next < peer_timers_.at(peer.index)) peer_timers_.set(peer.index, next);
}

void Endpoint::Impl::fire(Time now, Peer& peer) {
    peer_timers_.set(peer.index, time_never);
    const Time last_sign = std::max(peer.last_heard, peer.waiting_since);
    if (peer.waiting && now - last_sign >= config_.peer_timeout) {
        peer_down(now, peer, CommandError::peer_timeout);
        return;
    }
    if (peer.hello_at <= now) {
        peer.hello_at = time_never;
        peer.hello_due = peer.state == Peer::State::connecting;
        queue_control(peer);
    }
    if (peer.ack_at <= now) {
        peer.ack_at = time_never;
        peer.ack_now = true;
        queue_control(peer);
    }
    if (peer.loss_at <= now) {
        detect_losses(now, peer);
        refresh(peer);
    }
    if (peer.pace_at <= now) {
        peer.pace_at = time_never;
        refresh(peer);
    }
    if (peer.probe_at <= now) {
        ++peer.timeouts;
        ask(peer);
        peer.demand_due = peer.backlog_told > 0;  // the last one may have been lost
        peer.last_progress = now;
        peer.congestion->on_timeout(peer.timeouts);
        // A channel loses nothing on its way: its peer is busy, and sending again would make it busier.
        if (peer.timeouts > unanswered_probes && !is_trusted(peer.address)) {
            // Where questions and answers are lost too, waiting for one to come through costs more than sending again.
            const Duration overdue = peer.rtt.timeout(config_.min_rto);
            for (std::uint64_t n = peer.sent.find(0); n != peer.sent.next(); n = peer.sent.find(n + 1))
                if (!peer.sent[n].lost && now - peer.sent[n].sent_at >= overdue) declare_lost(peer, n);
            judge_paths(now, peer);  // all on a dead path is all that can be seen from here
            refresh(peer);
        }
        queue_control(peer);
        update_liveness(now, peer);
    }
    if (peer.keepalive_at <= now && peer.state == Peer::State::established) {
        ++peer.keepalive_tries;
        ask(peer);
        queue_control(peer);
        update_liveness(now, peer);
    }
    arm(peer);
}

void Endpoint::Impl::handle_timer(Time now) {
    while (peer_timers_.next() <= now) fire(now, *peers_[peer_timers_.top()]);
    while (message_timers_.next() <= now) {
        const std::uint32_t slot = message_timers_.top();
        message_timers_.set(slot, time_never);
        end_if_possible(now, slot);
    }
    for (std::size_t n = 0; n < peers_.size() && grants_.next() <= now; ++n) {
        const std::uint32_t index = grants_.grant(now);
        if (index == GrantScheduler::none) break;
        peers_[index]->grant_due = true;
        queue_control(*peers_[index]);
    }
}

Time Endpoint::Impl::next_deadline() const {
    return std::min({peer_timers_.next(), message_timers_.next(), grants_.next()});
}

}  // namespace dlcp

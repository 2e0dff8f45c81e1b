// How packets count as lost.
//
// A packet counts as lost when any of these holds: a later packet of its lane (path and class) is acknowledged and lies
// beyond the lane's tolerance; a packet of another lane that was sent a reordering window later is acknowledged (RFC
// 8985); it is a droppable block, and the end of its message's first pass is acknowledged so long ago that the receiver
// would give it up; it is overdue while later packets are acknowledged; a trimmed notice names it. Packets of the control class
// overtake data in switches and in the sender's own card, so they say nothing about data. A lost packet is watched for
// a while: a late acknowledgement widens the tolerance of the rule that erred, at most once a round trip, as RFC 8985
// (section 6.2) does: one event proves many packets late. When nothing is heard at all, a probe asks (RFC 9002's
// probe timeout, on RFC 6298's estimate); after several unanswered ones the bytes in flight are sent again without waiting.
#include "engine/recovery.hpp"

#include <algorithm>
#include <utility>

#include "engine/bytes.hpp"

namespace dlcp {

namespace {

// The tolerance doubles per spurious loss, up to a fraction of the window.
constexpr std::uint64_t most_lane_tolerance = PacketWindow::width / 8;
// So does the time by which a packet may overtake one of another lane. Beyond this limit only the estimate's deadline
// counts.
constexpr Duration most_reorder_window = seconds(1);

// After this many unanswered probes, everything in flight counts as lost. Where silence is an accident, such a probe is sent
// three times.
constexpr std::uint32_t unanswered_probes = 1;
constexpr std::uint8_t further_probes = 2;

// Whether an acknowledgement's bitmap has packet `largest` - `back`.
bool bit(const std::uint8_t* bitmap, std::uint64_t back) {
    return wire::load64(bitmap + back / 64 * 8) >> (back % 64) & 1;
}

}  // namespace

void Recovery::declare_lost(Peer& peer, std::uint64_t number, SentPacket::Loss loss) {
    SenderState& sender = peer.session->sender;
    SentPacket& p = sender.sent[number];
    p.loss = loss;
    if (loss == SentPacket::Loss::trimmed) {
        sender.paths.on_trimmed(p.path);
    } else if (!p.is_size_test()) {
        sender.paths.on_lost(p.path);
        if (p.message_slot != SentPacket::no_message)
            sender.size_search.on_lost(number, std::min(p.datagram_bytes(), peer.datagram_bytes), p.alone,
                                       sender.sent.next());
    }
    if (p.message_slot == SentPacket::no_message) return;
    --sender.awaiting;
    sender.in_flight -= Bytes{p.bytes};
    sender.lost_unreported += Bytes{p.bytes};
    ++shared_.counters.lost_packets;
    if (!shared_.outgoing.in_use(p.message_slot, p.message_generation)) return;
    OutgoingMessage& m = shared_.outgoing[p.message_slot];
    if (m.state != OutgoingState::State::sending && m.state != OutgoingState::State::held) return;
    m.on_lost(p.block);
    // Older than the waiting messages: goes to the front.
    if (m.state != OutgoingState::State::sending) return;
    if (m.has_block_to_send()) {
        outgoing_.enqueue(p.message_slot, true);
    } else if (m.first_pass_over()) {
        // No packet will follow, and the lost one may have announced the end of the pass.
        liveness_.ask(peer);
        shared_.queue_control(peer);
    }
}

void Recovery::make_room(Peer& peer) {
    SentRing& sent = peer.session->sender.sent;
    while (sent.full()) {
        const std::uint64_t oldest = sent.oldest();
        if (!sent[oldest].lost()) declare_lost(peer, oldest, SentPacket::Loss::overdue);
        sent.resolve(oldest);
        sent.trim();
    }
}

void Recovery::take_back(Peer& peer, std::uint32_t slot) {
    SenderState& sender = peer.session->sender;
    for (std::uint64_t n = sender.sent.find(0); n != sender.sent.next(); n = sender.sent.find(n + 1)) {
        SentPacket& p = sender.sent[n];
        if (p.lost() || p.message_slot != slot || p.message_generation != shared_.outgoing.generation(slot))
            continue;
        p.loss = SentPacket::Loss::held;
        --sender.awaiting;
        sender.in_flight -= Bytes{p.bytes};
        shared_.outgoing[slot].on_lost(p.block);
    }
}

void Recovery::handle_ack(Time now, Peer& peer, const wire::Ack& ack, std::uint64_t number) {
    SenderState& sender = peer.session->sender;
    if (ack.largest >= sender.sent.next() || ack.words == 0) {
        ++shared_.counters.inconsistent;  // acknowledges what was never sent
        return;
    }
    AckSample sample;
    sample.now = now;
    sample.in_flight = sender.in_flight;
    bool progress = false;
    const std::uint64_t covered = std::uint64_t{ack.words} * 64;
    const std::uint64_t first = ack.largest + 1 >= covered ? ack.largest + 1 - covered : 0;
    std::uint64_t newest = 0;
    for (std::uint64_t n = sender.sent.find(first); n <= ack.largest; n = sender.sent.find(n + 1)) {
        if (!bit(ack.received, ack.largest - n)) continue;
        if (n == ack.largest) {
            const Duration rtt = now - sender.sent[n].sent_at - nanoseconds(ack.ack_delay_ns);
            sender.paths.on_rtt(sender.sent[n].path, rtt);
            peer.rtt.sample(rtt);
        }
        acknowledge(now, peer, n, ack.ce != nullptr && bit(ack.ce, ack.largest - n), sample);
        progress = true;
        newest = n;
    }
    // Under turns this field holds the turn. What was last said of the buffer stays, for controllers without turns and for
    // the time after.
    if (!ack.turn) {
        sender.credit = Bytes{ack.credit_bytes};
        sender.stretched_credit = peer.stretched(sender.credit);
    }
    take_turn(now, peer, ack, number);
    if (progress) {
        sender.newest_acked.end = std::max(sender.newest_acked.end, newest + 1);
        end_round(peer, newest, sample);
    }
    if (ack.queue_delay_ns > 0) {
        sender.queue_delay = nanoseconds(ack.queue_delay_ns - 1);
        sample.queue_delay = sender.queue_delay;
    }
    detect_losses(now, peer);
    if (progress && sender.size_search.on_answer()) suspect_path_size(now, peer);
    if (sample.round_over) {
        // What is in flight may be lost, and then counts, however many rounds of probes pass before that is known.
        std::uint64_t n = sender.awaiting > 0 ? sender.sent.find(0) : sender.round_end;
        while (n < sender.round_end &&
               (sender.sent[n].lost() || sender.sent[n].message_slot == SentPacket::no_message))
            n = sender.sent.find(n + 1);
        sender.size_search.end_round(std::min(n, sender.round_end));
    }
    sample.lost = std::exchange(sender.lost_unreported, Bytes{0});
    note_loss_share(peer, sample);
    // An answer without news about data is no progress: the interval between questions about held messages keeps
    // growing.
    if (sample.acked_packets > 0 || sample.lost > Bytes{0}) {
        sender.timeouts = 0;
        sender.last_progress = now;
    }
    sample.rtt = peer.rtt.smoothed();
    sample.base_rtt = peer.rtt.measured() ? peer.rtt.min() : Duration{0};
    // The receiver divides its buffer, which is about as large as this one, among those that it hears from.
    sample.alone = credit_.one_sender() && sender.credit.value > shared_.config.receive_buffer.value / 2;
    report(peer, sample);
    if (sender.paths.due()) judge_paths(now, peer);
    shared_.refresh(peer);
    liveness_.update(now, peer);
}

// This packet arrived, with or without congestion experienced.
void Recovery::acknowledge(Time now, Peer& peer, std::uint64_t number, bool ce, AckSample& sample) {
    SenderState& sender = peer.session->sender;
    const SentPacket& p = sender.sent[number];
    sender.sent.resolve(number);
    sender.newest_acked.sent_at = std::max(sender.newest_acked.sent_at, p.sent_at);
    if (p.traffic_class != wire::control_class) {
        sender.newest_acked_data.end = std::max(sender.newest_acked_data.end, number + 1);
        sender.newest_acked_data.sent_at = std::max(sender.newest_acked_data.sent_at, p.sent_at);
    }
    std::uint64_t& lane_end = sender.lane_end(p, shared_.config.paths);
    lane_end = std::max(lane_end, number + 1);
    sender.paths.on_acked(p.path, ce);
    if (p.lost()) {
        ++shared_.counters.spurious_losses;
        widen_tolerance(now, peer, number);
    }
    if (p.is_size_test()) sender.size_search.on_test_acked(number, static_cast<std::uint16_t>(p.block));
    if (p.message_slot == SentPacket::no_message) return;
    sender.size_search.on_acked(number, std::min(p.datagram_bytes(), peer.datagram_bytes), p.alone);
    if (!p.lost()) {
        sender.in_flight -= Bytes{p.bytes};
        --sender.awaiting;
    }
    ++shared_.counters.acked_packets;
    ++sample.acked_packets;
    sample.acked += Bytes{p.bytes};
    sample.ce_packets += ce;
    if (!shared_.outgoing.in_use(p.message_slot, p.message_generation)) return;
    OutgoingMessage& m = shared_.outgoing[p.message_slot];
    if (m.told()) return;
    const bool first = !m.taken();
    m.on_acked(p.block);
    if (number >= m.pass_end && m.settled_at == time_never) {
        // The receiver waits no less for stragglers (note_first_pass_over), and what is repeated needlessly is droppable.
        peer.pass_window = std::max(peer.pass_window, peer.rtt.min() / 4);
        m.settled_at = now + peer.pass_window;
        sender.passes_settle = true;
    }
    if (first && m.state == OutgoingState::State::sending) outgoing_.enqueue(p.message_slot, false);
}

// This packet counted as lost and has arrived: the rule that erred becomes more patient.
void Recovery::widen_tolerance(Time now, Peer& peer, std::uint64_t number) {
    SenderState& sender = peer.session->sender;
    const SentPacket& p = sender.sent[number];
    if (p.loss == SentPacket::Loss::overdue) peer.late_answers.note(now, now - p.sent_at);
    const bool by_overtaking = p.loss == SentPacket::Loss::overtaken_in_lane ||
                               p.loss == SentPacket::Loss::overtaken || p.loss == SentPacket::Loss::pass_over;
    if (!by_overtaking || number < sender.widened_end) return;
    sender.widened_end = sender.sent.next();
    if (p.loss == SentPacket::Loss::pass_over)
        peer.pass_window = std::min(peer.pass_window * 2, most_reorder_window);
    else if (p.loss == SentPacket::Loss::overtaken_in_lane)
        peer.lane_tolerance = std::min(peer.lane_tolerance * 2, most_lane_tolerance);
    else
        peer.reorder_window = std::min(peer.reorder_window * 2, most_reorder_window);
}

// A moving average over some 256 packets.
void Recovery::note_loss_share(Peer& peer, const AckSample& sample) {
    const auto lost = static_cast<std::int64_t>(sample.lost.value / peer.datagram_bytes);
    const std::int64_t packets = std::min<std::int64_t>(sample.acked_packets + lost, 64);
    if (packets == 0) return;
    const std::int64_t share = (lost << 16) / (sample.acked_packets + lost);
    peer.loss_share += static_cast<std::int32_t>((share - peer.loss_share) * packets / 256);
}

// Leaves bad paths, returns to recovered ones, and reports both to the application.
void Recovery::judge_paths(Time now, Peer& peer) {
    path_changes_.clear();
    peer.session->sender.paths.update(now, peer.rtt.smoothed(), path_changes_);
    for (const PathSet::Change& change : path_changes_)
        shared_.push_event({.kind = change.up ? EventKind::path_up : EventKind::path_down,
                            .peer = {peer.index},
                            .value = change.path});
}

// Passes the account to congestion control and to the length of runs, and sets the pacer by their answers.
void Recovery::report(Peer& peer, const AckSample& sample) {
    SenderState& sender = peer.session->sender;
    sender.congestion->on_ack(sample);
    const bool fills_window = 2 * sample.in_flight.value > sender.window(peer.datagram_bytes).value;
    sender.run_length.on_ack({.acked_packets = sample.acked_packets,
                              .queue = sample.ce_packets > 0 || sample.trimmed,
                              .limited = fills_window || !sender.has_queued(),
                              .round_over = sample.round_over,
                              .sprayed = shared_.sprayed.yes(),
                              .packets_needed = shared_.send_rate.bytes_in_run_time() / peer.datagram_bytes});
    pace(sample.now, peer, std::min(peer.rtt.smoothed(), peer.rtt.latest()));
}

void Recovery::pace(Time now, Peer& peer, Duration rtt) {
    SenderState& sender = peer.session->sender;
    // A burst is one run, or what the rate sends within the timer's granularity. The current round trip is used, not
    // the smoothed one: while a long queue drains, the smoothed one lags, and a sender paced by it would measure so
    // rarely that the lag persists.
    sender.pacer.set(now, sender.congestion->pacing_rate(rtt),
                     Bytes{std::uint64_t{peer.datagram_bytes} * sender.run_length.packets() * 2},
                     shared_.config.timer_granularity);
}

void Recovery::end_round(Peer& peer, std::uint64_t newest, AckSample& sample) {
    SenderState& sender = peer.session->sender;
    if (newest < sender.round_end) return;
    sample.round_over = true;
    sender.round_end = sender.sent.next();
}

// What an acknowledgement says about turns. Control packets overtake each other: an older one says nothing.
void Recovery::take_turn(Time now, Peer& peer, const wire::Ack& ack, std::uint64_t number) {
    SenderState& sender = peer.session->sender;
    if (!sender.congestion->takes_turns() || number < sender.turn_number) return;
    sender.turn_number = number;
    if (!ack.turn) {
        if (sender.turn) end_turns(peer);
        return;
    }
    const Bytes before = sender.turn.value_or(Bytes{0});
    sender.turn = Bytes{ack.credit_bytes};
    sender.turn_until = now + turn_length(peer);
    if (*sender.turn > before) {
        sender.congestion->begin_turn(now, *sender.turn);
        if (before.value == 0) pace(now, peer, peer.rtt.min());
    } else if (sender.waits() && before.value > 0) {
        sender.congestion->end_turn(false);
    }
}

void Recovery::end_turns(Peer& peer) {
    SenderState& sender = peer.session->sender;
    if (sender.turn && !sender.waits()) sender.congestion->end_turn(sender.has_queued());
    sender.turn.reset();
    sender.turn_until = time_never;
    shared_.refresh(peer);
}

// What a receiver said about turns holds for so long: it may have stopped to give them, and the word of it got lost.
Duration Recovery::turn_length(const Peer& peer) const { return peer.rtt.timeout(shared_.config.min_rto) * 4; }

// A trimmed packet is repeated at once. It also counts as congestion: if everything is trimmed it is the only sign.
void Recovery::handle_trimmed(Time now, Peer& peer, const std::uint8_t* numbers, std::size_t count) {
    SenderState& sender = peer.session->sender;
    AckSample sample;
    sample.now = now;
    sample.trimmed = true;
    sample.in_flight = sender.in_flight;
    sample.rtt = peer.rtt.smoothed();
    sample.base_rtt = peer.rtt.measured() ? peer.rtt.min() : Duration{0};
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t number = wire::load64(numbers + 8 * i);
        if (!sender.sent.tracked(number) || sender.sent[number].lost()) continue;
        const SentPacket& p = sender.sent[number];
        // Droppable packets carry no mark; to be trimmed says what a mark says of a critical one.
        const bool droppable = shared_.outgoing.in_use(p.message_slot, p.message_generation) &&
                               !shared_.outgoing[p.message_slot].critical(p.block);
        declare_lost(peer, number, SentPacket::Loss::trimmed);
        if (droppable) {
            sender.lost_unreported -= Bytes{p.bytes};
            ++sample.acked_packets;
            ++sample.ce_packets;
        }
        end_round(peer, number, sample);
    }
    sample.lost = std::exchange(sender.lost_unreported, Bytes{0});
    report(peer, sample);
    shared_.refresh(peer);
}

// When this packet counts as lost since its message's first pass is over; time_never: for that reason it does not.
Time Recovery::settles_at(std::uint64_t number, const SentPacket& p) const {
    if (p.message_slot == SentPacket::no_message || !shared_.outgoing.in_use(p.message_slot, p.message_generation))
        return time_never;
    const OutgoingMessage& m = shared_.outgoing[p.message_slot];
    return number < m.pass_end && !m.critical(p.block) ? m.settled_at : time_never;
}

void Recovery::detect_losses(Time now, Peer& peer) {
    SenderState& sender = peer.session->sender;
    sender.loss_at = time_never;
    if (sender.newest_acked.end == 0) return;
    const Duration overdue = peer.rtt.timeout(shared_.config.min_rto);
    peer.reorder_window = std::max(peer.reorder_window, std::max(shared_.config.min_rto, peer.rtt.min() / 4));
    const bool passes_settle = std::exchange(sender.passes_settle, false);
    for (std::uint64_t n = sender.sent.find(0); n + 1 < sender.newest_acked.end; n = sender.sent.find(n + 1)) {
        const SentPacket& p = sender.sent[n];
        const SenderState::Newest& newest = sender.newest_beside(p);
        if (p.lost() || n + 1 >= newest.end) continue;
        const Time settled_at = passes_settle ? settles_at(n, p) : time_never;
        if (sender.lane_end(p, shared_.config.paths) > n + peer.lane_tolerance)
            declare_lost(peer, n, SentPacket::Loss::overtaken_in_lane);
        else if (newest.sent_at - p.sent_at >= peer.reorder_window)
            declare_lost(peer, n, SentPacket::Loss::overtaken);
        else if (now >= settled_at)
            declare_lost(peer, n, SentPacket::Loss::pass_over);
        else if (now - p.sent_at >= overdue)
            declare_lost(peer, n, SentPacket::Loss::overdue);
        else
            sender.loss_at = std::min({sender.loss_at, p.sent_at + overdue, settled_at});
        sender.passes_settle |= settled_at != time_never;
    }
    sender.sent.trim();
}

// Nothing was heard for a probe timeout. The first probe follows the data that it asks about, through the same queues:
// if these are long, the data is acknowledged before it, and if not, what its answer lacks is lost. A probe that overtook
// them would be answered while they wait, and prove nothing.
void Recovery::probe_unanswered(Time now, Peer& peer) {
    SenderState& sender = peer.session->sender;
    ++sender.timeouts;
    liveness_.ask(peer);
    if (sender.timeouts > unanswered_probes && liveness_.loses_by_chance(peer))
        peer.session->owed.further_probes = further_probes;
    if (sender.timeouts <= unanswered_probes && sender.awaiting > 0)
        peer.session->owed.probe_of_data = std::exchange(peer.session->owed.probe, false);
    sender.last_progress = now;
    // With nothing in flight the peer holds a message, or has blocks of it to be released: no sign of congestion.
    if (sender.awaiting > 0) sender.congestion->on_timeout(sender.timeouts);
    // A channel loses nothing: its peer is busy, and sending again would make it busier.
    if (sender.timeouts > unanswered_probes && !is_trusted(peer.address)) {
        // Where probes and answers are lost too, waiting for one to get through costs more than sending again.
        // A peer that was not scheduled for so long before is not sent everything twice. But where acknowledgements are
        // lost they are late by the probes' own intervals, and waiting for longer than these teaches nothing.
        const Duration estimate = peer.rtt.timeout(shared_.config.min_rto);
        const std::uint32_t most = liveness_.most_backoff(peer);
        const Duration overdue = std::clamp(peer.late_answers.at(now), estimate, estimate * (1LL << most));
        for (std::uint64_t n = sender.sent.find(0); n != sender.sent.next(); n = sender.sent.find(n + 1))
            if (!sender.sent[n].lost() && now - sender.sent[n].sent_at >= overdue)
                declare_lost(peer, n, SentPacket::Loss::overdue);
        judge_paths(now, peer);  // what all died on one path shows nowhere else
        shared_.refresh(peer);
    }
    shared_.queue_control(peer);
    liveness_.update(now, peer);
}

}  // namespace dlcp

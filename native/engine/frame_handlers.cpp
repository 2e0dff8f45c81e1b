// What each frame does: one function per kind of frame that a control packet may hold.
#include <algorithm>

#include "engine/bytes.hpp"
#include "engine/endpoint.hpp"

namespace dlcp {

namespace {

// An answer to a probe that says that an earlier one brought none leaves so often besides.
constexpr std::uint8_t further_acks = 2;

// The ids of a frame that is a list of message ids; nothing if its count and length disagree.
class Ids {
public:
    explicit Ids(const wire::Frame& frame) : first_(frame.body.data() + 4) {
        if (!wire::read_count(frame, count_)) count_ = 0;
    }
    std::size_t size() const { return count_; }
    std::uint32_t operator[](std::size_t i) const { return wire::load32(first_ + 4 * i); }

private:
    const std::uint8_t* first_;
    std::uint16_t count_ = 0;
};

}  // namespace

void Endpoint::handle_frame(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    using Handle = void (Endpoint::*)(Peer&, const FramesIn&, const wire::Frame&);
    // By wire::FrameType.
    static constexpr Handle handlers[] = {
        nullptr,  // padding: nothing
        &Endpoint::handle_ack_frame,
        &Endpoint::handle_complete,
        &Endpoint::handle_outcome,
        &Endpoint::handle_probe,
        &Endpoint::handle_trimmed_frame,
        &Endpoint::handle_hold,
        &Endpoint::handle_proceed,
        &Endpoint::handle_refuse,
        &Endpoint::handle_cancel,
        &Endpoint::handle_demand,
        &Endpoint::handle_grant,
        &Endpoint::handle_close,
        nullptr,  // hello: only in a packet of its own
        &Endpoint::handle_piece,
    };
    const auto type = static_cast<std::size_t>(frame.type);
    if (type < std::size(handlers) && handlers[type] != nullptr) (this->*handlers[type])(peer, in, frame);
}

// The slot of this endpoint's own message that the peer's frame names; UINT32_MAX if the message is over.
std::uint32_t Endpoint::own_message(const Peer& peer, std::uint32_t wire_id) const {
    const IdRing<std::uint32_t>& ids = peer.session->sender.ids;
    return ids.contains(wire_id) ? ids[wire_id] : UINT32_MAX;
}

void Endpoint::handle_ack_frame(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    wire::Ack ack;
    if (!wire::read_ack(frame, ack)) {
        ++counters_.malformed_frames;
        return;
    }
    handle_ack(in, peer, ack);
}

// What an acknowledgement says about turns. Control packets overtake each other: an older one says nothing.
void Endpoint::take_turn(const FramesIn& in, Peer& peer, const wire::Ack& ack) {
    SenderState& sender = peer.session->sender;
    if (!sender.congestion->takes_turns() || in.number < sender.turn_number) return;
    sender.turn_number = in.number;
    if (!ack.turn) {
        if (sender.turn) end_turns(peer);
        return;
    }
    const Bytes before = sender.turn.value_or(Bytes{0});
    sender.turn = Bytes{ack.credit_bytes};
    sender.turn_until = in.now + turn_length(peer);
    if (*sender.turn > before) {
        sender.congestion->begin_turn(in.now, *sender.turn);
        if (before.value == 0) pace(in.now, peer, peer.rtt.min());
    } else if (sender.waits() && before.value > 0) {
        sender.congestion->end_turn(false);
    }
}

void Endpoint::end_turns(Peer& peer) {
    SenderState& sender = peer.session->sender;
    if (sender.turn && !sender.waits()) sender.congestion->end_turn(sender.has_queued());
    sender.turn.reset();
    sender.turn_until = time_never;
    refresh(peer);
}

// What a receiver said about turns holds for so long: it may have stopped to give them, and the word of it got lost.
Duration Endpoint::turn_length(const Peer& peer) const { return peer.rtt.timeout(config_.min_rto) * 4; }

void Endpoint::handle_complete(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    const Ids ids(frame);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint32_t slot = own_message(peer, ids[i]);
        if (slot != UINT32_MAX) finish_outgoing(in.now, slot, CommandError::none);
    }
}

void Endpoint::handle_outcome(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    wire::Outcome outcome;
    if (!wire::read_outcome(frame, outcome)) {
        ++counters_.malformed_frames;
        return;
    }
    const std::uint32_t slot = own_message(peer, outcome.message_id);
    if (slot == UINT32_MAX) return;
    OutgoingMessage& m = outgoing_[slot];
    for (std::size_t w = 0; w < outcome.words; ++w)
        m.merge_abandoned(outcome.word_offset + static_cast<std::uint32_t>(w),
                          wire::load64(outcome.abandoned + 8 * w));
    if (m.abandoned_known() < outcome.abandoned_blocks) return;
    // The peer breaks the rules: critical blocks are never abandoned.
    if (m.abandons_critical()) {
        ++counters_.inconsistent;
        finish_outgoing(in.now, slot, CommandError::peer_cancelled);
        return;
    }
    counters_.abandoned_by_peer_blocks += m.abandoned_known();
    counters_.abandoned_by_peer_bytes += m.bytes_of(m.abandoned());
    finish_outgoing(in.now, slot, CommandError::none);
}

void Endpoint::handle_probe(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    Owed& owed = peer.session->owed;
    owed.ack = owed.ack_full = true;
    owed.grant = grants_.granted(peer.index).value > 0;  // the last one may have been lost
    if (frame.flags & wire::probe_flag_unanswered) {
        owed.small = true;
        owed.further_acks = further_acks;
        if (peer.session->sender.large_control) suspect_path_size(in.now, peer);
    }
    queue_control(peer);
    const Ids ids(frame);
    for (std::size_t i = 0; i < ids.size(); ++i) handle_probed(peer, in, ids[i]);
}

// The sender asks about the end of this message.
void Endpoint::handle_probed(Peer& peer, const FramesIn& in, std::uint32_t id) {
    Owed& owed = peer.session->owed;
    IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    if (id == UINT32_MAX || id < messages.base()) return;
    if (id - messages.base() >= id_span()) {
        owed.hold_ids.push_back(id);
        return;
    }
    if (!messages.contains(id) || messages[id].state == IncomingIdState::State::unknown) {
        // None of it arrived, or the sender holds it and missed the proceed frame.
        owed.proceed_ids.push_back(id);
        return;
    }
    const IncomingEntry& entry = messages[id];
    if (entry.state != IncomingIdState::State::active) {
        answer(peer, id);
        return;
    }
    owed.proceed_ids.push_back(id);  // in case an old hold frame was the last it heard
    IncomingMessage& m = incoming_[entry.slot];
    note_first_pass_over(in.now, m, in.delay_ns);
    if (m.tolerant()) end_if_possible(in.now, entry.slot);
}

void Endpoint::handle_trimmed_frame(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    std::uint16_t count = 0;
    if (wire::read_count(frame, count)) handle_trimmed(in.now, peer, frame.body.data() + 4, count);
}

void Endpoint::handle_hold(Peer& peer, const FramesIn&, const wire::Frame& frame) {
    const Ids ids(frame);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint32_t slot = own_message(peer, ids[i]);
        if (slot == UINT32_MAX || outgoing_[slot].state != OutgoingState::State::sending) continue;
        outgoing_[slot].state.apply(OutgoingState::Event::hold);
        peer.session->sender.queues[outgoing_[slot].traffic_class].remove(outgoing_, slot);
        take_back(peer, slot);
    }
    refresh(peer);
}

void Endpoint::handle_proceed(Peer& peer, const FramesIn&, const wire::Frame& frame) {
    const Ids ids(frame);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint32_t slot = own_message(peer, ids[i]);
        if (slot != UINT32_MAX && outgoing_[slot].state == OutgoingState::State::held) enqueue(slot, true);
    }
}

void Endpoint::handle_refuse(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    const std::uint32_t slot = own_message(peer, wire::load32(frame.body.data()));
    if (slot == UINT32_MAX) return;
    const bool too_small = frame.body[4] == static_cast<std::uint8_t>(CommandError::refused);
    finish_outgoing(in.now, slot, too_small ? CommandError::refused : CommandError::peer_cancelled);
}

void Endpoint::handle_cancel(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    const std::uint32_t id = wire::load32(frame.body.data());
    ReceiverState& receiver = peer.session->receiver;
    if (id == UINT32_MAX || id < receiver.messages.base() || id - receiver.messages.base() >= id_span()) return;
    receiver.messages.extend(id);
    IncomingEntry& entry = receiver.messages[id];
    if (entry.state == IncomingIdState::State::active)
        finish_incoming(in.now, entry.slot, CommandError::peer_cancelled);
    if (entry.state == IncomingIdState::State::held) --receiver.held;
    if (entry.state.may(IncomingIdState::Event::cancel)) entry.state.apply(IncomingIdState::Event::cancel);
    answer(peer, id);
}

// Any peer that asks gets grants, whichever congestion controller this side uses.
void Endpoint::handle_demand(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    grants_.want(in.now, peer.index, Bytes{wire::load64(frame.body.data())});
}

void Endpoint::handle_grant(Peer& peer, const FramesIn&, const wire::Frame& frame) {
    Bytes& granted = peer.session->sender.granted;
    granted = std::max(granted, Bytes{wire::load64(frame.body.data())});
    refresh(peer);
}

void Endpoint::handle_close(Peer& peer, const FramesIn& in, const wire::Frame&) {
    peer_down(in.now, peer, CommandError::peer_closed);
}

}  // namespace dlcp

// What each frame does: one function per kind of frame that a control packet may hold.
#include <algorithm>

#include "engine/arrivals.hpp"
#include "engine/bytes.hpp"

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

void Arrivals::handle_frame(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    using Handle = void (Arrivals::*)(Peer&, const FramesIn&, const wire::Frame&);
    // By wire::FrameType.
    static constexpr Handle handlers[] = {
        nullptr,  // padding: nothing
        &Arrivals::handle_ack,
        &Arrivals::handle_complete,
        &Arrivals::handle_outcome,
        &Arrivals::handle_probe,
        &Arrivals::handle_trimmed,
        &Arrivals::handle_hold,
        &Arrivals::handle_proceed,
        &Arrivals::handle_refuse,
        &Arrivals::handle_cancel,
        nullptr,  // 10 and 11: not assigned
        nullptr,
        &Arrivals::handle_close,
        nullptr,  // hello: only in a packet of its own
        &Arrivals::handle_piece,
    };
    const auto type = static_cast<std::size_t>(frame.type);
    if (type < std::size(handlers) && handlers[type] != nullptr) (this->*handlers[type])(peer, in, frame);
}

void Arrivals::handle_ack(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    wire::Ack ack;
    if (!wire::read_ack(frame, ack)) {
        ++shared_.counters.malformed_frames;
        return;
    }
    recovery_.handle_ack(in.now, peer, ack, in.number);
}

void Arrivals::handle_complete(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    const Ids ids(frame);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint32_t slot = Outgoing::find(peer, ids[i]);
        if (slot != UINT32_MAX) outgoing_.finish(in.now, slot, CommandError::none);
    }
}

void Arrivals::handle_outcome(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    wire::Outcome outcome;
    if (!wire::read_outcome(frame, outcome)) {
        ++shared_.counters.malformed_frames;
        return;
    }
    const std::uint32_t slot = Outgoing::find(peer, outcome.message_id);
    if (slot == UINT32_MAX) return;
    OutgoingMessage& m = shared_.outgoing[slot];
    for (std::size_t w = 0; w < outcome.words; ++w)
        m.merge_abandoned(outcome.word_offset + static_cast<std::uint32_t>(w),
                          wire::load64(outcome.abandoned + 8 * w));
    if (m.abandoned_known() < outcome.abandoned_blocks) return;
    // The peer breaks the rules: critical blocks are never abandoned.
    if (m.abandons_critical()) {
        ++shared_.counters.inconsistent;
        outgoing_.finish(in.now, slot, CommandError::peer_cancelled);
        return;
    }
    shared_.counters.abandoned_by_peer_blocks += m.abandoned_known();
    shared_.counters.abandoned_by_peer_bytes += m.bytes_of(m.abandoned());
    outgoing_.finish(in.now, slot, CommandError::none);
}

void Arrivals::handle_probe(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    Owed& owed = peer.session->owed;
    owed.ack = owed.ack_full = true;
    if (frame.flags & wire::probe_flag_unanswered) {
        owed.small = true;
        owed.further_acks = further_acks;
        if (peer.session->sender.large_control) recovery_.suspect_path_size(in.now, peer);
    }
    shared_.queue_control(peer);
    const Ids ids(frame);
    for (std::size_t i = 0; i < ids.size(); ++i) handle_probed(peer, in, ids[i]);
}

// The sender asks about the end of this message.
void Arrivals::handle_probed(Peer& peer, const FramesIn& in, std::uint32_t id) {
    Owed& owed = peer.session->owed;
    IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    if (id == UINT32_MAX || id < messages.base()) return;
    if (id - messages.base() >= shared_.id_span()) {
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
        incoming_.answer(peer, id);
        return;
    }
    owed.proceed_ids.push_back(id);  // in case an old hold frame was the last it heard
    IncomingMessage& m = shared_.incoming[entry.slot];
    incoming_.note_first_pass_over(in.now, m, in.delay_ns);
    if (m.tolerant()) incoming_.end_if_possible(in.now, entry.slot);
}

void Arrivals::handle_trimmed(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    std::uint16_t count = 0;
    if (wire::read_count(frame, count)) recovery_.handle_trimmed(in.now, peer, frame.body.data() + 4, count);
}

void Arrivals::handle_hold(Peer& peer, const FramesIn&, const wire::Frame& frame) {
    const Ids ids(frame);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint32_t slot = Outgoing::find(peer, ids[i]);
        if (slot == UINT32_MAX || shared_.outgoing[slot].state != OutgoingState::State::sending) continue;
        shared_.outgoing[slot].state.apply(OutgoingState::Event::hold);
        peer.session->sender.queues[shared_.outgoing[slot].traffic_class].remove(shared_.outgoing, slot);
        recovery_.take_back(peer, slot);
    }
    shared_.refresh(peer);
}

void Arrivals::handle_proceed(Peer& peer, const FramesIn&, const wire::Frame& frame) {
    const Ids ids(frame);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint32_t slot = Outgoing::find(peer, ids[i]);
        if (slot != UINT32_MAX && shared_.outgoing[slot].state == OutgoingState::State::held)
            outgoing_.enqueue(slot, true);
    }
}

void Arrivals::handle_refuse(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    const std::uint32_t slot = Outgoing::find(peer, wire::load32(frame.body.data()));
    if (slot == UINT32_MAX) return;
    const bool too_small = frame.body[4] == static_cast<std::uint8_t>(CommandError::refused);
    outgoing_.finish(in.now, slot, too_small ? CommandError::refused : CommandError::peer_cancelled);
}

void Arrivals::handle_cancel(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    const std::uint32_t id = wire::load32(frame.body.data());
    ReceiverState& receiver = peer.session->receiver;
    if (id == UINT32_MAX || id < receiver.messages.base() || id - receiver.messages.base() >= shared_.id_span())
        return;
    receiver.messages.extend(id);
    IncomingEntry& entry = receiver.messages[id];
    if (entry.state == IncomingIdState::State::active)
        incoming_.finish(in.now, entry.slot, CommandError::peer_cancelled);
    if (entry.state == IncomingIdState::State::held) --receiver.held;
    if (entry.state.may(IncomingIdState::Event::cancel)) entry.state.apply(IncomingIdState::Event::cancel);
    incoming_.answer(peer, id);
}

void Arrivals::handle_close(Peer& peer, const FramesIn& in, const wire::Frame&) {
    sessions_.peer_down(in.now, peer, CommandError::peer_closed);
}

void Arrivals::handle_piece(Peer& peer, const FramesIn& in, const wire::Frame& frame) {
    constexpr std::uint8_t congestion_experienced = 3;
    constexpr std::uint64_t most_pieces = 256;
    wire::Piece piece;
    if (!wire::read_piece(frame, piece)) {
        ++shared_.counters.malformed_frames;
        return;
    }
    // The pieces of a packet have the numbers just before its own. So nobody fills the room with packets that never come.
    if (piece.packet_number <= in.number || piece.packet_number - in.number > most_pieces ||
        (frame.flags & wire::piece_flag_virtual && !shared_.config.virtual_payload)) {
        ++shared_.counters.inconsistent;
        return;
    }
    const bool marked = (in.packet.tos & congestion_experienced) == congestion_experienced;
    Reassembly::Partial* const whole = peer.session->receiver.reassembly.add(
        piece.packet_number, piece.datagram_bytes, piece.offset, piece.bytes, marked);
    if (whole == nullptr) return;
    dlcp_packet packet = in.packet;
    packet.head = whole->bytes.data();
    packet.head_bytes = whole->length;
    packet.body_bytes = 0;
    if (frame.flags & wire::piece_flag_virtual && whole->length >= wire::header_bytes) {
        const bool tagged = (whole->bytes[wire::flags_offset] & wire::flag::authenticated) != 0;
        packet.head_bytes = static_cast<std::uint32_t>(wire::header_bytes + (tagged ? wire::tag_bytes : 0));
        packet.body_bytes = whole->length - std::min<std::uint32_t>(packet.head_bytes, whole->length);
    }
    packet.tos = static_cast<std::uint8_t>(packet.tos | (whole->marked ? congestion_experienced : 0));
    wire::Datagram d;
    const wire::ParseError error =
        wire::parse({packet.head, std::min<std::size_t>(packet.head_bytes, whole->length)}, packet.body_bytes, d);
    const wire::Header& h = d.header;
    // Of this session, and the packet that its pieces name: it takes no other's place.
    if (error != wire::ParseError::none || h.type != wire::Type::data || h.flags & wire::flag::trimmed ||
        h.job != shared_.config.job || h.source_rank != peer.rank || h.packet_number != piece.packet_number ||
        h.session != static_cast<std::uint32_t>(peer.handshake.own_session)) {
        ++shared_.counters.inconsistent;
        return;
    }
    take_whole(in, peer, packet, d);
}

}  // namespace dlcp

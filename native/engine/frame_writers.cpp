// What each frame contains: one function per kind of frame, in the order in which a control packet holds them.
//
// Each function writes what is owed of its kind while there is room, and clears what it wrote; the rest stays for the
// next packet.
#include <algorithm>

#include "engine/bytes.hpp"
#include "engine/control_writer.hpp"

namespace dlcp {

namespace {

// Message ids that one probe names: the oldest, which should end first.
constexpr std::size_t probe_ids = 64;

template <class T>
std::size_t fitting(std::size_t room, std::size_t wanted) {
    const std::size_t frame = wire::frame_prefix_bytes + 4;
    return room < frame + sizeof(T) ? 0 : std::min(wanted, (room - frame) / sizeof(T));
}

template <class T>
void erase_first(std::vector<T>& items, std::size_t count) {
    items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count));
}

// Moves as many ids as fit from the list into one frame; calls `written` with each.
template <class Written>
void write_ids(wire::FrameWriter& writer, wire::FrameType type, std::vector<std::uint32_t>& ids,
               Written&& written) {
    const std::size_t n = fitting<std::uint32_t>(writer.room(), ids.size());
    if (n == 0) return;
    writer.put_ids(type, {ids.data(), n});
    for (std::size_t i = 0; i < n; ++i) written(ids[i]);
    erase_first(ids, n);
}

// Marks the answer to this message as no longer queued.
void note_answered(Peer& peer, std::uint32_t wire_id) {
    IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    if (messages.contains(wire_id)) messages[wire_id].answer_queued = false;
}

}  // namespace

void ControlWriter::write_frames(Peer& peer, FramesOut& out) {
    using Write = void (ControlWriter::*)(Peer&, FramesOut&);
    static constexpr Write writers[] = {
        &ControlWriter::write_ack,     &ControlWriter::write_complete, &ControlWriter::write_hold,
        &ControlWriter::write_proceed, &ControlWriter::write_refuse,   &ControlWriter::write_probe,
        &ControlWriter::write_cancel,  &ControlWriter::write_outcome,  &ControlWriter::write_trimmed,
        &ControlWriter::write_floor,   &ControlWriter::write_close};
    for (const Write write : writers) (this->*write)(peer, out);
}

// Every control packet carries the acknowledgement that is due: it is nearly free.
void ControlWriter::write_ack(Peer& peer, FramesOut& out) {
    Owed& owed = peer.session->owed;
    ReceiverState& receiver = peer.session->receiver;
    if ((owed.ack || receiver.unacked_packets > 0 || owed.probe) && !receiver.window.empty()) {
        const PacketWindow& window = receiver.window;
        const std::uint64_t largest = window.largest();
        const std::uint64_t base =
            owed.ack_full ? largest - std::min(largest, PacketWindow::width - 1) : window.ack_base();
        const std::size_t word_bytes = window.has_ce() ? 16 : 8;
        const std::size_t fixed = wire::frame_prefix_bytes + wire::ack_body_bytes;
        // The newest half of an acknowledgement always fits; a probe asks for the rest.
        const std::size_t words = std::min(static_cast<std::size_t>((largest - base) / 64 + 1),
                                           (out.writer.room() - std::min(out.writer.room(), fixed)) / word_bytes);
        const ReceiverCredit::Allowed allowed = credit_.allowed(out.now, peer);
        const wire::Ack ack{.largest = largest,
                            .ack_delay_ns = static_cast<std::uint32_t>(
                                std::min<std::int64_t>((out.now - receiver.largest_arrived_at).value, UINT32_MAX)),
                            .queue_delay_ns = receiver.delays.take_median(),
                            .credit_bytes = allowed.bytes.value,
                            .turn = allowed.turn,
                            .ce_packets = receiver.ce_packets,
                            .words = static_cast<std::uint16_t>(words)};
        if (wire::write_ack(out.writer, ack, window)) {
            receiver.window.acknowledged();
            receiver.ack_at = time_never;
            receiver.unacked_packets = 0;
        }
    }
    owed.ack = owed.ack_full = owed.further_acks > 0;
    if (owed.ack) --owed.further_acks;
}

void ControlWriter::write_complete(Peer& peer, FramesOut& out) {
    write_ids(out.writer, wire::FrameType::complete, peer.session->owed.complete_ids,
              [&](std::uint32_t id) { note_answered(peer, id); });
}

void ControlWriter::write_hold(Peer& peer, FramesOut& out) {
    write_ids(out.writer, wire::FrameType::hold, peer.session->owed.hold_ids,
              [&](std::uint32_t id) { note_answered(peer, id); });
}

void ControlWriter::write_proceed(Peer& peer, FramesOut& out) {
    write_ids(out.writer, wire::FrameType::proceed, peer.session->owed.proceed_ids, [](std::uint32_t) {});
}

void ControlWriter::write_refuse(Peer& peer, FramesOut& out) {
    std::vector<std::uint32_t>& ids = peer.session->owed.refuse_ids;
    IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    for (; !ids.empty(); ids.pop_back()) {
        if (!messages.contains(ids.back())) continue;
        if (!out.writer.put_refuse(ids.back(), messages[ids.back()].reason)) return;
        note_answered(peer, ids.back());
    }
}

void ControlWriter::write_probe(Peer& peer, FramesOut& out) {
    if (!peer.session->owed.probe) return;
    std::array<std::uint32_t, probe_ids> ids;
    std::size_t n = 0;
    const std::size_t most = fitting<std::uint32_t>(out.writer.room(), probe_ids);
    for (std::uint32_t slot = peer.session->sender.started.front(); slot != Link::none && n < most;
         slot = StartedList::next(shared_.outgoing, slot)) {
        const OutgoingMessage& message = shared_.outgoing[slot];
        if (message.state == OutgoingState::State::cancelling) continue;
        if (message.first_pass_over() || message.state == OutgoingState::State::held) ids[n++] = message.wire_id;
    }
    SenderState& sender = peer.session->sender;
    // An answer without news, as about a message that is held, leaves the count of timeouts as it is.
    const bool unanswered =
        (sender.timeouts > 1 || peer.keepalive_tries > 1) && peer.last_heard < sender.probed_at;
    const std::uint8_t flags = unanswered ? wire::probe_flag_unanswered : 0;
    if (!out.writer.put_ids(wire::FrameType::probe, {ids.data(), n}, flags)) return;
    peer.session->owed.probe = peer.session->owed.further_probes > 0;
    if (peer.session->owed.probe) --peer.session->owed.further_probes;
    sender.probed_at = out.now;
    out.asks = true;
    ++shared_.counters.probes_sent;
}

// In a packet of its own: nothing else should wait in a queue of data.
void ControlWriter::write_probe_of_data(Peer& peer, FramesOut& out) {
    const SentRing& sent = peer.session->sender.sent;
    std::uint64_t n = sent.find(0);
    while (n != sent.next() && (sent[n].lost() || sent[n].message_slot == SentPacket::no_message))
        n = sent.find(n + 1);
    if (n != sent.next()) out.traffic_class = sent[n].traffic_class;
    peer.session->owed.probe_of_data = false;
    peer.session->owed.probe = true;
    write_probe(peer, out);
}

void ControlWriter::write_cancel(Peer& peer, FramesOut& out) {
    for (std::vector<std::uint32_t>& ids = peer.session->owed.cancel_ids; !ids.empty(); ids.pop_back()) {
        if (!out.writer.put_cancel(ids.back())) return;
        out.asks = true;
    }
}

void ControlWriter::write_outcome(Peer& peer, FramesOut& out) {
    Owed& owed = peer.session->owed;
    IdRing<IncomingEntry>& messages = peer.session->receiver.messages;
    while (!owed.outcome_ids.empty()) {
        const std::uint32_t id = owed.outcome_ids.front();
        if (messages.contains(id) && messages[id].slot != UINT32_MAX) {
            const IncomingMessage& m = shared_.incoming[messages[id].slot];
            const std::span<const std::uint64_t> all = m.received.words();
            // Words without an abandoned block are not worth sending at either end.
            std::size_t first = owed.outcome_word;
            while (first < all.size() && all[first] == 0) ++first;
            std::size_t last = all.size();
            while (last > first && all[last - 1] == 0) --last;
            const std::size_t prefix = wire::frame_prefix_bytes + wire::outcome_body_bytes;
            if (out.writer.room() < prefix + 8) return;
            const std::size_t words = std::min(last - first, (out.writer.room() - prefix) / 8);
            wire::write_outcome(out.writer, id, m.abandoned_blocks, static_cast<std::uint32_t>(first),
                                all.subspan(first, words));
            if (first + words < last) {
                owed.outcome_word = static_cast<std::uint32_t>(first + words);
                return;  // the rest in the next packet
            }
            note_answered(peer, id);
        }
        owed.outcome_word = 0;
        erase_first(owed.outcome_ids, 1);
    }
}

void ControlWriter::write_trimmed(Peer& peer, FramesOut& out) {
    std::vector<std::uint64_t>& numbers = peer.session->owed.trimmed_numbers;
    const std::size_t n = fitting<std::uint64_t>(out.writer.room(), numbers.size());
    if (n == 0) return;
    out.writer.put_packet_numbers({numbers.data(), n});
    erase_first(numbers, n);
}

// The floor is in every control packet's header: if nothing else is owed, an empty frame makes a packet.
void ControlWriter::write_floor(Peer& peer, FramesOut& out) {
    bool& due = peer.session->owed.floor;
    if (due && (out.writer.size() > 0 || out.writer.put_padding(wire::frame_prefix_bytes))) due = false;
}

// Last: the answers that end messages come before it, or the peer would take those messages for failed.
void ControlWriter::write_close(Peer& peer, FramesOut& out) {
    const Owed& owed = peer.session->owed;
    out.closing = owed.close && owed.complete_ids.empty() && owed.outcome_ids.empty() &&
                  out.writer.put_close(static_cast<std::uint8_t>(CommandError::peer_closed));
}

}  // namespace dlcp

// Control packets: one gathers all that is owed to a peer, and each frame that arrives goes to the part it concerns.
//
// Every frame is idempotent: it states a fact (what arrived, how a message ended), so losing or repeating one does no
// harm. What is lost is said again when the peer probes.
#include <algorithm>

#include "engine/bytes.hpp"
#include "engine/endpoint_impl.hpp"

namespace dlcp {

namespace {

// Message ids one probe names: the oldest, whose turn it is to end.
constexpr std::size_t probe_ids = 64;

template <class T>
std::size_t fitting(std::size_t room, std::size_t wanted) {
    const std::size_t frame = wire::frame_prefix_bytes + 4;
    return room < frame + sizeof(T) ? 0 : std::min(wanted, (room - frame) / sizeof(T));
}

// Moves as many ids as fit from the list into one frame.
void put_ids(wire::FrameWriter& writer, wire::FrameType type, std::vector<std::uint32_t>& ids) {
    if (ids.empty()) return;
    const std::size_t n = fitting<std::uint32_t>(writer.room(), ids.size());
    if (n == 0) return;
    writer.put_ids(type, {ids.data(), n});
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
}

}  // namespace

void Endpoint::Impl::queue_control(Peer& peer) {
    if (peer.control_queued) return;
    peer.control_queued = true;
    control_queue_.push(peer.index);
}

bool Endpoint::Impl::owes_control(const Peer& peer) const {
    if (peer.answer_hello || peer.answer_candidate) return true;
    if (peer.state == Peer::State::connecting) return peer.hello_due;
    if (peer.state != Peer::State::established) return false;
    return peer.ack_now || peer.probe_due || peer.grant_due || peer.demand_due || peer.close_due ||
           peer.floor_due || !peer.complete_ids.empty() || !peer.outcome_ids.empty() || !peer.refuse_ids.empty() ||
           !peer.hold_ids.empty() || !peer.proceed_ids.empty() || !peer.cancel_ids.empty() ||
           !peer.trimmed_numbers.empty();
}

// Tells the sender, in the next control packet, how a message of its ended (or that it must wait).
void Endpoint::Impl::answer(Peer& peer, std::uint32_t wire_id) {
    IncomingEntry& entry = peer.incoming[wire_id];
    if (entry.answer_queued) return;
    switch (entry.state) {
        case IncomingEntry::State::delivered: peer.complete_ids.push_back(wire_id); break;
        case IncomingEntry::State::abandoned: peer.outcome_ids.push_back(wire_id); break;
        case IncomingEntry::State::refused: peer.refuse_ids.push_back(wire_id); break;
        case IncomingEntry::State::held: peer.hold_ids.push_back(wire_id); break;
        default: return;
    }
    entry.answer_queued = true;
    queue_control(peer);
}

void Endpoint::Impl::write_ack(Time now, Peer& peer, wire::FrameWriter& writer) {
    const PacketWindow& window = peer.window;
    const std::uint64_t largest = window.largest();
    const std::uint64_t base =
        peer.ack_full ? largest - std::min(largest, PacketWindow::width - 1) : window.ack_base();
    const bool ce = window.has_ce();
    std::size_t words = static_cast<std::size_t>((largest - base) / 64 + 1);
    const std::size_t room =
        writer.room() - std::min(writer.room(), wire::frame_prefix_bytes + wire::ack_body_bytes);
    // A packet is never too small for its acknowledgement's newest half; the rest is repeated when probed.
    words = std::min(words, room / (ce ? 16 : 8));
    std::uint8_t* body = writer.put(wire::FrameType::ack, ce ? wire::ack_flag_has_ce : 0,
                                    wire::ack_body_bytes + words * (ce ? 16 : 8));
    if (body == nullptr) return;
    wire::store64(body, largest);
    wire::store32(body + 8, static_cast<std::uint32_t>(
                                std::min<std::int64_t>((now - peer.largest_arrived_at).value, UINT32_MAX)));
    wire::store32(body + 12, peer.arrival_delays.take_median());
    wire::store64(body + 16, credit_for(now, peer).value);
    wire::store32(body + 24, peer.ce_received);
    wire::store16(body + 28, static_cast<std::uint16_t>(words));
    wire::store16(body + 30, 0);
    for (std::size_t w = 0; w < words; ++w) {
        std::uint64_t mask = ~std::uint64_t{0};
        if (largest < 64 * w + 63) mask >>= 63 - (largest - 64 * w);  // before the first packet of the session
        wire::store64(body + wire::ack_body_bytes + 8 * w, window.received_word(largest - 64 * w) & mask);
        if (ce)
            wire::store64(body + wire::ack_body_bytes + 8 * (words + w), window.ce_word(largest - 64 * w) & mask);
    }
    peer.window.acknowledged();
    peer.ack_now = peer.ack_full = false;
    peer.ack_at = time_never;
    peer.unacked_packets = 0;
}

bool Endpoint::Impl::write_control(Time now, Peer& peer, dlcp_packet& slot) {
    if (peer.answer_candidate) {
        write_hello(now, peer, true, slot);
        peer.answer_candidate = false;
        return true;
    }
    if (peer.answer_hello) {
        write_hello(now, peer, false, slot);
        peer.answer_hello = false;
        return true;
    }
    if (peer.state == Peer::State::connecting) {
        if (!peer.hello_due) return false;
        peer.hello_due = false;
        write_hello(now, peer, false, slot);
        peer.hello_sent_at = now;
        const std::uint32_t backoff = std::min<std::uint32_t>(peer.hello_attempts++, 10);
        peer.hello_at = now + std::min(config_.initial_rtt * (2LL << backoff), config_.max_rto);
        arm(peer);
        return true;
    }
    if (!owes_control(peer)) return false;

    const bool keyed = peer.protects();
    const std::size_t overhead = wire::header_bytes + (keyed ? wire::tag_bytes : 0);
    wire::FrameWriter writer(slot.head + wire::header_bytes, peer.datagram_bytes - overhead);
    // With anything to say goes an acknowledgement, if there is something to acknowledge: it is nearly free.
    if ((peer.ack_now || peer.unacked_packets > 0 || peer.probe_due) && !peer.window.empty())
        write_ack(now, peer, writer);
    peer.ack_now = peer.ack_full = false;

    const auto answered = [&](const std::vector<std::uint32_t>& ids, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            if (peer.incoming.contains(ids[i])) peer.incoming[ids[i]].answer_queued = false;
    };
    for (auto& [type, ids] : {std::pair{wire::FrameType::complete, &peer.complete_ids},
                              std::pair{wire::FrameType::hold, &peer.hold_ids}}) {
        answered(*ids, fitting<std::uint32_t>(writer.room(), ids->size()));
        put_ids(writer, type, *ids);
    }
    put_ids(writer, wire::FrameType::proceed, peer.proceed_ids);
    while (!peer.refuse_ids.empty()) {
        const std::uint32_t id = peer.refuse_ids.back();
        const bool known = peer.incoming.contains(id);
        if (known && !writer.put_refuse(id, peer.incoming[id].reason)) break;
        if (known) peer.incoming[id].answer_queued = false;
        peer.refuse_ids.pop_back();
    }
    bool asks = false;  // wants an acknowledgement: enters the sent ring
    if (peer.probe_due) {
        std::array<std::uint32_t, probe_ids> ids;
        std::size_t n = 0;
        const std::size_t most = fitting<std::uint32_t>(writer.room(), probe_ids);
        for (std::uint32_t m = peer.started.front(); m != Link::none && n < most;
             m = StartedList::next(outgoing_, m)) {
            const OutgoingMessage& message = outgoing_[m];
            if (message.state == OutgoingMessage::State::cancelling) continue;
            if (message.first_pass_over() || message.state == OutgoingMessage::State::held)
                ids[n++] = message.wire_id;
        }
        if (writer.put_ids(wire::FrameType::probe, {ids.data(), n})) {
            peer.probe_due = false;
            asks = true;
            ++counters_.probes_sent;
        }
    }
    while (!peer.cancel_ids.empty()) {
        if (!writer.put_cancel(peer.cancel_ids.back())) break;
        peer.cancel_ids.pop_back();
        asks = true;
    }
    while (!peer.outcome_ids.empty()) {
        const std::uint32_t id = peer.outcome_ids.front();
        const bool known = peer.incoming.contains(id) && peer.incoming[id].slot != UINT32_MAX;
        if (known) {
            const IncomingMessage& m = incoming_[peer.incoming[id].slot];
            const auto all = m.received.words();
            // Words without an abandoned block are not worth sending at either end.
            std::size_t first = peer.outcome_word;
            while (first < all.size() && all[first] == 0) ++first;
            std::size_t last = all.size();
            while (last > first && all[last - 1] == 0) --last;
            const std::size_t prefix = wire::frame_prefix_bytes + wire::outcome_body_bytes;
            if (writer.room() < prefix + 8) break;
            const std::size_t words = std::min(last - first, (writer.room() - prefix) / 8);
            std::uint8_t* body = writer.put(wire::FrameType::outcome, 0, wire::outcome_body_bytes + words * 8);
            wire::store32(body, id);
            wire::store32(body + 4, m.abandoned_blocks);
            wire::store32(body + 8, static_cast<std::uint32_t>(first));
            wire::store16(body + 12, static_cast<std::uint16_t>(words));
            wire::store16(body + 14, 0);
            for (std::size_t w = 0; w < words; ++w)
                wire::store64(body + wire::outcome_body_bytes + 8 * w, all[first + w]);
            if (first + words < last) {
                peer.outcome_word = static_cast<std::uint32_t>(first + words);
                break;  // the rest in the next packet
            }
            peer.incoming[id].answer_queued = false;
        }
        peer.outcome_word = 0;
        peer.outcome_ids.erase(peer.outcome_ids.begin());
    }
    if (!peer.trimmed_numbers.empty()) {
        const std::size_t n = fitting<std::uint64_t>(writer.room(), peer.trimmed_numbers.size());
        if (n > 0) {
            writer.put_packet_numbers({peer.trimmed_numbers.data(), n});
            peer.trimmed_numbers.erase(peer.trimmed_numbers.begin(),
                                       peer.trimmed_numbers.begin() + static_cast<std::ptrdiff_t>(n));
        }
    }
    if (peer.grant_due && writer.put_total(wire::FrameType::grant, grants_.granted(peer.index).value))
        peer.grant_due = false;
    if (peer.demand_due && writer.put_total(wire::FrameType::demand, peer.backlog_told)) peer.demand_due = false;
    if (peer.floor_due && (writer.size() > 0 || writer.put_padding(wire::frame_prefix_bytes)))
        peer.floor_due = false;
    const bool closing = peer.close_due && peer.complete_ids.empty() && peer.outcome_ids.empty() &&
                         writer.put_close(static_cast<std::uint8_t>(CommandError::peer_closed));
    if (writer.size() == 0) return false;

    wire::Header h;
    h.type = wire::Type::control;
    h.flags = static_cast<std::uint8_t>((keyed ? wire::flag::authenticated : 0) |
                                        (keyed && config_.encrypt ? wire::flag::encrypted : 0) |
                                        (asks ? wire::flag::ack_request : 0));
    h.traffic_class = wire::control_class;
    h.key_epoch = peer.keys.send_epoch();
    h.path = peer.timeouts > 1 || peer.keepalive_tries > 1 ? peer.paths.any(random_.next())
                                                           : peer.paths.any_up(random_.next());
    h.job = config_.job;
    h.source_rank = config_.rank;
    h.session = static_cast<std::uint32_t>(peer.peer_session);
    h.timestamp_ns = static_cast<std::uint32_t>(now.value);
    h.message_id = peer.floor_told = peer.outgoing_ids.base();
    h.payload_bytes = static_cast<std::uint16_t>(writer.size());
    // A packet that falls out of the receiver's window cannot be acknowledged any more.
    while (peer.sent.full()) {
        const std::uint64_t oldest = peer.sent.oldest();
        if (!peer.sent[oldest].lost) declare_lost(peer, oldest);
        peer.sent.resolve(oldest);
        peer.sent.trim();
    }
    if (asks) {
        SentPacket record;
        record.sent_at = now;
        record.path = h.path;
        record.traffic_class = wire::control_class;
        h.packet_number = peer.sent.push(record);
        peer.paths.on_sent(h.path);
    } else {
        h.packet_number = peer.sent.skip();
    }
    wire::write(h, slot.head);
    slot.head_bytes = static_cast<std::uint32_t>(wire::header_bytes + writer.size());
    slot.body = nullptr;
    slot.body_bytes = 0;
    slot.tail_bytes = 0;
    slot.address = &peer.address;
    slot.path = h.path;
    slot.tos = static_cast<std::uint8_t>(config_.dscp[wire::control_class] << 2 | 2);  // ECT(0)
    slot.flags = 0;
    if (keyed) {
        if (config_.encrypt)
            seal(peer, slot, slot.head + wire::header_bytes, static_cast<std::uint32_t>(writer.size()),
                 h.packet_number);
        else {
            peer.keys.send().authenticate(slot.head, h.packet_number,
                                          {slot.head + wire::header_bytes, writer.size()},
                                          slot.head + slot.head_bytes);
            slot.tail_bytes = wire::tag_bytes;
        }
    }
    ++counters_.control_packets_sent;
    counters_.control_bytes_sent += writer.size();
    counters_.header_bytes_sent += overhead;
    if (closing) {
        end_session(now, peer);
        // Wanted again since: a new session.
        if (!peer.outgoing.empty() || !peer.posted.empty()) start_handshake(now, peer);
    }
    arm(peer);
    return true;
}

void Endpoint::Impl::handle_control(Time now, Time arrived, Peer& peer, const wire::Datagram& d) {
    if (d.payload == nullptr && d.header.payload_bytes > 0) return;  // virtual control carries nothing
    const std::uint32_t delay_ns = static_cast<std::uint32_t>(arrived.value) - d.header.timestamp_ns;
    peer.arrival_delays.sample_control(now, delay_ns);
    // Wire ids name this endpoint's own messages in complete, outcome, hold, proceed and refuse.
    const auto own = [&](std::uint32_t id) -> std::uint32_t {
        return peer.outgoing_ids.contains(id) ? peer.outgoing_ids[id] : UINT32_MAX;
    };
    wire::FrameReader reader({d.payload, d.header.payload_bytes});
    wire::Frame frame;
    while (peer.state == Peer::State::established && reader.next(frame)) {
        std::uint16_t count = 0;
        const bool has_count = wire::read_count(frame, count);
        const auto id_at = [&](std::size_t i) { return wire::load32(frame.body.data() + 4 + 4 * i); };
        switch (frame.type) {
            case wire::FrameType::ack: {
                wire::Ack ack;
                if (wire::read_ack(frame, ack))
                    handle_ack(now, peer, ack);
                else
                    ++counters_.malformed_frames;
                break;
            }
            case wire::FrameType::complete:
                for (std::size_t i = 0; has_count && i < count; ++i) {
                    const std::uint32_t slot = own(id_at(i));
                    if (slot == UINT32_MAX) continue;
                    finish_outgoing(now, slot, CommandError::none);
                }
                break;
            case wire::FrameType::outcome: {
                wire::Outcome outcome;
                if (!wire::read_outcome(frame, outcome)) {
                    ++counters_.malformed_frames;
                    break;
                }
                const std::uint32_t slot = own(outcome.message_id);
                if (slot == UINT32_MAX) break;
                OutgoingMessage& m = outgoing_[slot];
                for (std::size_t w = 0; w < outcome.words; ++w)
                    m.merge_abandoned(outcome.word_offset + static_cast<std::uint32_t>(w),
                                      wire::load64(outcome.abandoned + 8 * w));
                if (m.abandoned_known() < outcome.abandoned_blocks) break;
                // A peer that breaks the rules: critical blocks are never abandoned.
                if (m.abandons_critical()) {
                    ++counters_.inconsistent;
                    finish_outgoing(now, slot, CommandError::peer_cancelled);
                    break;
                }
                counters_.abandoned_by_peer_blocks += m.abandoned_known();
                counters_.abandoned_by_peer_bytes += m.bytes_of(m.abandoned());
                finish_outgoing(now, slot, CommandError::none);
                break;
            }
            case wire::FrameType::probe:
                peer.ack_now = peer.ack_full = true;
                peer.grant_due = grants_.granted(peer.index).value > 0;  // the last one may have been lost
                queue_control(peer);
                for (std::size_t i = 0; has_count && i < count; ++i) {
                    const std::uint32_t id = id_at(i);
                    if (id == UINT32_MAX || id < peer.incoming.base()) continue;
                    if (id - peer.incoming.base() >= id_span()) {
                        peer.hold_ids.push_back(id);
                        continue;
                    }
                    if (!peer.incoming.contains(id) || peer.incoming[id].state == IncomingEntry::State::unknown) {
                        // Nothing of it came, or it was told to hold and the word to proceed was lost.
                        peer.proceed_ids.push_back(id);
                        continue;
                    }
                    IncomingEntry& entry = peer.incoming[id];
                    if (entry.state == IncomingEntry::State::active) {
                        peer.proceed_ids.push_back(id);  // in case an old word to hold was the last it heard
                        IncomingMessage& m = incoming_[entry.slot];
                        note_first_pass_over(now, m, delay_ns);
                        if (m.tolerant()) end_if_possible(now, entry.slot);
                    } else {
                        answer(peer, id);
                    }
                }
                break;
            case wire::FrameType::trimmed:
                if (has_count) handle_trimmed(now, peer, frame.body.data() + 4, count);
                break;
            case wire::FrameType::hold:
            case wire::FrameType::proceed:
                for (std::size_t i = 0; has_count && i < count; ++i) {
                    const std::uint32_t slot = own(id_at(i));
                    if (slot == UINT32_MAX) continue;
                    OutgoingMessage& m = outgoing_[slot];
                    if (frame.type == wire::FrameType::hold && m.state == OutgoingMessage::State::sending) {
                        m.state = OutgoingMessage::State::held;
                        peer.queues[m.traffic_class].remove(outgoing_, slot);
                    } else if (frame.type == wire::FrameType::proceed && m.state == OutgoingMessage::State::held) {
                        enqueue(slot, true);
                    }
                }
                break;
            case wire::FrameType::refuse: {
                const std::uint32_t slot = own(wire::load32(frame.body.data()));
                if (slot == UINT32_MAX) break;
                const bool too_small = frame.body[4] == static_cast<std::uint8_t>(CommandError::refused);
                finish_outgoing(now, slot, too_small ? CommandError::refused : CommandError::peer_cancelled);
                break;
            }
            case wire::FrameType::cancel: {
                const std::uint32_t id = wire::load32(frame.body.data());
                if (id == UINT32_MAX || id < peer.incoming.base() || id - peer.incoming.base() >= id_span()) break;
                peer.incoming.extend(id);
                IncomingEntry& entry = peer.incoming[id];
                if (entry.state == IncomingEntry::State::active)
                    finish_incoming(now, entry.slot, CommandError::peer_cancelled);
                if (entry.state == IncomingEntry::State::held) --peer.held;
                if (entry.state == IncomingEntry::State::held || entry.state == IncomingEntry::State::unknown)
                    entry.state = IncomingEntry::State::delivered;
                answer(peer, id);
                break;
            }
            case wire::FrameType::demand:
                // Whoever asks is granted, whatever this side itself sends by.
                if (frame.body.size() >= 8) grants_.want(now, peer.index, Bytes{wire::load64(frame.body.data())});
                break;
            case wire::FrameType::grant:
                if (frame.body.size() < 8) break;
                peer.granted = std::max(peer.granted, Bytes{wire::load64(frame.body.data())});
                refresh(peer);
                break;
            case wire::FrameType::close: peer_down(now, peer, CommandError::peer_closed); break;
            case wire::FrameType::padding:
            case wire::FrameType::hello:
            default: break;
        }
    }
    if (reader.malformed()) ++counters_.malformed_frames;
    // Last: a goodbye or an outcome says better than the floor how a message ended.
    if (peer.state == Peer::State::established) advance_floor(now, peer, d.header.message_id);
}

}  // namespace dlcp

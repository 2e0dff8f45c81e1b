// What leaves next: control first, then the highest class that has work and may send, one run at a time.
//
// A run is a row of packets with one destination, path and TOS, and, but for the last, one length, so that a driver
// can hand it to the kernel as one. Within a class, peers take turns run by run.
#include <algorithm>
#include <bit>

#include "engine/endpoint_impl.hpp"

namespace dlcp {

namespace {

// ECN-capable transport (RFC 3168): a switch marks these instead of dropping them.
constexpr std::uint8_t ect0 = 2;

// Share of packets lost, in 2^-16, from which on the last packet of the last message is sent twice: 0.2 %. Below, the copies would
// cost about as much as the waiting they save.
constexpr std::int32_t loss_share_for_copies = (1 << 16) / 500;

// Offset of the flags byte in the header, patched after a run is known to be the last.
constexpr std::size_t flags_offset = 2;

}  // namespace

// Puts a peer back into the ready queues of the classes it has work in. Call whenever it may have become able to
// send: new work, window, credit, pacing time.
void Endpoint::Impl::refresh(Peer& peer) {
    if (peer.state != Peer::State::established) return;
    for (std::uint8_t c = 0; c < wire::control_class; ++c) {
        const std::uint8_t bit = static_cast<std::uint8_t>(1u << c);
        if (peer.queues[c].empty() || peer.ready_classes & bit) continue;
        peer.ready_classes |= bit;
        ready_[c].push(peer.index);
        ready_classes_ |= bit;
    }
}

// One message that nobody receives holds up those that come a whole span after it: what the receiver remembers is
// bounded. Said once each time.
bool Endpoint::Impl::may_start_message(Peer& peer) {
    if (peer.outgoing_ids.span() < id_span() && peer.outgoing_ids.end() != UINT32_MAX) {
        peer.ids_exhausted = false;
        return true;
    }
    if (!peer.ids_exhausted) {
        peer.ids_exhausted = true;
        push_event({EventKind::bound_reached,
                    CommandError::too_many_messages,
                    {peer.index},
                    {},
                    0,
                    static_cast<std::uint32_t>(Bound::messages),
                    {0}});
    }
    return false;
}

void Endpoint::Impl::seal(Peer& peer, dlcp_packet& packet, const std::uint8_t* payload,
                          std::uint32_t payload_bytes, std::uint64_t number) {
    if (!peer.protects()) {
        packet.tail_bytes = 0;
        return;
    }
    packet.tail_bytes = wire::tag_bytes;
    if (config_.encrypt && payload != nullptr) {
        peer.keys.send().encrypt(packet.head, number, {payload, payload_bytes}, packet.head + wire::header_bytes,
                                 packet.head + wire::header_bytes + payload_bytes);
        packet.head_bytes = static_cast<std::uint32_t>(wire::header_bytes + payload_bytes);
        packet.body = nullptr;
        packet.body_bytes = 0;
        return;
    }
    peer.keys.send().authenticate(packet.head, number, {payload, payload != nullptr ? payload_bytes : 0},
                                  packet.head + packet.head_bytes);
}

std::size_t Endpoint::Impl::transmit_run(Time now, Peer& peer, std::uint8_t traffic_class,
                                         std::span<dlcp_packet> slots) {
    SendQueue& queue = peer.queues[traffic_class];
    // Messages with nothing left to send leave the queue here.
    while (!queue.empty() && !outgoing_[queue.front()].has_block_to_send()) queue.remove(outgoing_, queue.front());
    if (queue.empty() || peer.sent.full()) return 0;

    const bool was_idle = peer.awaiting == 0 || peer.in_flight.value == 0;
    const Flight flight{peer.in_flight, peer.sent_total, peer.granted};
    const std::uint64_t window =
        std::min(peer.congestion->window(flight), std::max(peer.credit, Bytes{peer.datagram_bytes})).value;
    std::uint64_t allowed = window > peer.in_flight.value ? window - peer.in_flight.value : 0;
    const std::uint64_t pace = peer.pacer.allowed_bytes(now);
    if (pace < peer.datagram_bytes && pace < allowed) {
        peer.pace_at = peer.pacer.next(now);
        arm(peer);
        return 0;
    }
    allowed = std::min(allowed, pace);
    if (peer.run_left == 0) {
        const PathSet::Choice choice = peer.paths.choose(now, peer.rtt.smoothed());
        peer.run_path = choice.path;
        peer.run_left = choice.single ? 1 : config_.run_packets;
    }

    struct Taken {
        std::uint32_t slot;
        std::uint32_t block;
        std::uint64_t number;
        bool repair;
    };
    constexpr std::size_t longest_run = 64;  // segments in one kernel super-packet
    std::array<Taken, longest_run> taken;
    const std::size_t most = std::min<std::size_t>({slots.size(), peer.run_left, longest_run, peer.sent.room()});
    const bool keyed = peer.protects();
    const std::uint32_t overhead = wire::header_bytes + (keyed ? wire::tag_bytes : 0);
    std::size_t n = 0;
    bool run_critical = false;
    std::uint64_t bytes = 0;

    wire::Header h;
    h.type = wire::Type::data;
    h.traffic_class = traffic_class;
    h.key_epoch = peer.keys.send_epoch();
    h.path = peer.run_path;
    h.job = config_.job;
    h.source_rank = config_.rank;
    h.session = static_cast<std::uint32_t>(peer.peer_session);
    h.timestamp_ns = static_cast<std::uint32_t>(now.value);
    const std::uint8_t key_flags = keyed ? wire::flag::authenticated : 0;

    std::uint32_t slot = Link::none;
    while (n < most) {
        if (slot == Link::none || slot != queue.front()) {
            slot = queue.front();
            OutgoingMessage& m = outgoing_[slot];
            if (m.wire_id == 0) {
                if (!may_start_message(peer)) break;
                m.wire_id = peer.outgoing_ids.end();
                peer.outgoing_ids.extend(m.wire_id);
                peer.outgoing_ids[m.wire_id] = slot;
                peer.started.push_back(outgoing_, slot);
                if (!peer.waiting) update_liveness(now, peer);
            }
            h.tag = m.tag;
            h.message_id = m.wire_id;
            h.message_bytes = m.message_bytes;
            h.critical_blocks = m.critical_blocks();
            h.block_bytes = m.block_bytes();
            h.budget = m.budget;
            h.deadline = m.deadline;
        }
        OutgoingMessage& m = outgoing_[slot];
        const OutgoingMessage::Next next = m.peek();
        if (n > 0 && next.critical != run_critical) break;  // another TOS: another run
        const std::uint32_t payload_bytes = m.payload_bytes(next.block);
        const std::uint32_t datagram = overhead + payload_bytes;
        if (bytes + datagram > allowed && !(peer.in_flight.value == 0 && n == 0)) break;
        m.take(next);
        if (now >= m.patient_until) m.give_up_rest();
        run_critical = next.critical;

        const bool is_virtual = m.payload == nullptr && payload_bytes > 0;
        h.flags = static_cast<std::uint8_t>(key_flags | (next.critical ? wire::flag::critical : 0) |
                                            (next.repair ? wire::flag::repair : 0) |
                                            (keyed && config_.encrypt && !is_virtual ? wire::flag::encrypted : 0));
        h.importance = m.importance(next.block);
        h.block_index = next.block;
        h.payload_bytes = static_cast<std::uint16_t>(payload_bytes);
        SentPacket record;
        record.sent_at = now;
        record.message_slot = slot;
        record.message_generation = outgoing_.generation(slot);
        record.block = next.block;
        record.bytes = static_cast<std::uint16_t>(datagram);
        record.path = peer.run_path;
        record.traffic_class = traffic_class;
        h.packet_number = peer.sent.push(record);
        ++peer.awaiting;

        dlcp_packet& packet = slots[n];
        wire::write(h, packet.head);
        packet.head_bytes = wire::header_bytes;
        packet.body =
            is_virtual || payload_bytes == 0 ? nullptr : m.payload + std::size_t{next.block} * m.block_bytes();
        packet.body_bytes = payload_bytes;
        packet.tail_bytes = 0;
        packet.address = &peer.address;
        packet.path = peer.run_path;
        packet.tos = static_cast<std::uint8_t>(config_.dscp[traffic_class] << 2 | (next.critical ? ect0 : 0));
        packet.flags = is_virtual ? DLCP_PACKET_VIRTUAL : 0;
        taken[n++] = {slot, next.block, h.packet_number, next.repair};
        bytes += datagram;
        peer.paths.on_sent(peer.run_path);
        counters_.data_bytes_sent += payload_bytes;
        if (next.repair) {
            ++counters_.repair_packets_sent;
            counters_.repair_bytes_sent += payload_bytes;
            m.retransmitted_bytes += payload_bytes;
        }
        if (!m.has_block_to_send()) {
            queue.remove(outgoing_, slot);
            slot = Link::none;
            while (!queue.empty() && !outgoing_[queue.front()].has_block_to_send())
                queue.remove(outgoing_, queue.front());
            if (queue.empty()) break;
        }
    }
    if (n == 0) return 0;

    if (peer.in_flight.value == 0) peer.last_progress = now;
    peer.run_left = static_cast<std::uint16_t>(peer.run_left - n);
    peer.in_flight += Bytes{bytes};
    peer.sent_total += Bytes{bytes};
    peer.unrequested_bytes += bytes;
    peer.pacer.on_sent(now, {bytes});
    counters_.data_packets_sent += n;
    counters_.header_bytes_sent += overhead * n;

    // An acknowledgement is asked for four times a window, and when nothing more follows for now: of data, or because
    // the window or the pace ends and nothing in flight has asked yet. If something has, its answer sets the next
    // packets free; to ask with each of those would make an answer a packet for as long as the window is full.
    const bool queued =
        std::any_of(peer.queues.begin(), peer.queues.end(), [](const SendQueue& q) { return !q.empty(); });
    const bool more =
        queued && (bytes + peer.datagram_bytes <= allowed || peer.unrequested_bytes < peer.in_flight.value);
    const bool request = !more || peer.unrequested_bytes * 4 >= window;
    if (request) peer.unrequested_bytes = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const OutgoingMessage& m = outgoing_[taken[i].slot];
        std::uint8_t& flags = slots[i].head[flags_offset];
        // On the last packet alone: the receiver takes it that nothing of the pass follows it in its lane.
        const bool last_of_message = i + 1 == n || taken[i + 1].slot != taken[i].slot;
        if (m.first_pass_over() && last_of_message) flags |= wire::flag::first_pass_over;
        if (request && i + 1 == n) flags |= wire::flag::ack_request;
        if (keyed) seal(peer, slots[i], slots[i].body, slots[i].body ? slots[i].body_bytes : 0, taken[i].number);
    }
    const Taken& last = taken[n - 1];
    if (!queued && run_critical && !last.repair && peer.loss_share > loss_share_for_copies &&
        outgoing_[last.slot].first_pass_over()) {
        // Nothing follows that would show the loss of this one, and waiting for a probe takes several round trips.
        outgoing_[last.slot].on_lost(last.block);
        enqueue(last.slot, true);
    }
    // Later packets change no deadline: those count from the last progress. With credit, what is wanted grows.
    if (was_idle || !peer.waiting || config_.congestion == CongestionAlgorithm::credit) update_liveness(now, peer);
    return n;
}

std::size_t Endpoint::Impl::poll_transmit(Time now, std::span<dlcp_packet> slots) {
    std::size_t n = 0;
    while (n < slots.size() && !control_queue_.empty()) {
        Peer& peer = *peers_[control_queue_.front()];
        if (write_control(now, peer, slots[n])) {
            ++n;
            if (owes_control(peer)) continue;  // more than one packet holds
        }
        control_queue_.pop();
        peer.control_queued = false;
    }
    // The highest class first; one that has become ready meanwhile waits for the next call.
    for (std::uint32_t left = ready_classes_; left != 0 && n < slots.size();) {
        const auto c = static_cast<std::uint32_t>(std::bit_width(left)) - 1;
        left &= ~(1u << c);
        RingQueue<std::uint32_t>& ready = ready_[c];
        while (!ready.empty() && n < slots.size()) {
            Peer& peer = *peers_[ready.front()];
            ready.pop();
            const std::uint8_t bit = static_cast<std::uint8_t>(1u << c);
            peer.ready_classes &= static_cast<std::uint8_t>(~bit);
            if (peer.state != Peer::State::established) continue;
            const std::size_t sent = transmit_run(now, peer, static_cast<std::uint8_t>(c), slots.subspan(n));
            n += sent;
            // Nothing sent: blocked by window, pacer or ring; whoever unblocks it calls refresh().
            if (sent > 0 && !peer.queues[c].empty()) {
                peer.ready_classes |= bit;
                ready.push(peer.index);
            }
        }
        if (ready.empty()) ready_classes_ &= static_cast<std::uint8_t>(~(1u << c));
    }
    return n;
}

}  // namespace dlcp

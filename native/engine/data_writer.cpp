#include "engine/data_writer.hpp"

#include <algorithm>
#include <bit>

#include "engine/packet_builder.hpp"
#include "engine/prefetch.hpp"

namespace dlcp {

namespace {

// Recent share of lost packets, in 2^-16, above which the last packet of the last message is sent twice: 0.2 %. Below
// it the copies would cost about as much as the waiting they save.
constexpr std::int32_t loss_share_for_copies = (1 << 16) / 500;

}  // namespace

// A run under construction: its limits, and what it holds so far.
struct DataWriter::Run {
    struct Block {
        std::uint32_t slot;
        std::uint32_t block;
        std::uint64_t number;
        bool repair;
    };
    static constexpr std::size_t longest = 64;  // segments in one kernel super-packet

    std::span<dlcp_packet> slots;  // as many packets as the run may have at most
    Time now{0};
    bool keyed = false;
    std::uint64_t window = 0;   // bytes that may be in flight
    std::uint64_t allowed = 0;  // bytes that window and pace leave for this run
    std::array<Block, longest> blocks;
    std::size_t size = 0;
    std::uint64_t bytes = 0;  // as windows count: see counted_bytes
    std::uint64_t saved = 0;  // of these, what short headers leave out
    bool critical = false;    // all of its blocks are, or none
    bool in_pieces = false;   // it is one packet, larger than the path carries
    bool adjoins = false;     // the driver's heads do: its packets may lie end to end

    const Block& last() const { return blocks[size - 1]; }
    // A block's datagram with a long header. Windows count blocks so whatever their headers, so that a window of n full
    // packets always holds n: with the bytes of short headers, the rests that are left made flows that share a queue
    // unequal (an incast of 32 ended 4 % later).
    std::uint32_t counted_bytes(std::uint32_t payload_bytes) const {
        return static_cast<std::uint32_t>(wire::header_bytes + (keyed ? wire::tag_bytes : 0)) + payload_bytes;
    }
};

// The receiver's memory of ids is bounded, so one message without a receive delays those that follow a whole span
// later. Each such case is reported by one event.
bool DataWriter::may_start_message(Peer& peer) {
    SenderState& sender = peer.session->sender;
    if (sender.ids.span() < shared_.id_span() && sender.ids.end() != UINT32_MAX) {
        sender.ids_exhausted = false;
        return true;
    }
    if (!sender.ids_exhausted) {
        sender.ids_exhausted = true;
        shared_.push_bound(Bound::messages, CommandError::too_many_messages, {peer.index});
    }
    return false;
}

// Removes messages with nothing left to send from the front of the list. False: none is left in it.
bool DataWriter::find_work(SendQueue& queue, const SendList& list) {
    while (!list.empty() && !shared_.outgoing[list.front()].has_block_to_send())
        queue.remove(shared_.outgoing, list.front());
    return !list.empty();
}

// The list that the next run is taken from; nullptr: nothing is left to send, or none of it may start.
const SendList* DataWriter::list_for_run(Peer& peer, SendQueue& queue) {
    for (std::uint8_t left = queue.filled(); left != 0;) {
        const std::uint8_t index = queue.next_of(left);
        const SendList& list = queue.list(index);
        left &= static_cast<std::uint8_t>(~(1u << index));
        if (!find_work(queue, list)) continue;
        if (shared_.outgoing[list.front()].wire_id != 0 || may_start_message(peer)) return &list;
        if (const SendList* const other = bring_started_forward(queue, list)) return other;
    }
    return nullptr;
}

// No message may start: those under way must not wait behind one that has not, since only their end frees ids. The list
// that one of them is now the first of, which may be another; nullptr: none is in this list.
const SendList* DataWriter::bring_started_forward(SendQueue& queue, const SendList& list) {
    for (std::uint32_t slot = list.front(); slot != Link::none; slot = SendList::next(shared_.outgoing, slot)) {
        if (shared_.outgoing[slot].wire_id == 0 || !shared_.outgoing[slot].has_block_to_send()) continue;
        queue.remove(shared_.outgoing, slot);
        queue.push_front(shared_.outgoing, slot);
        return &queue.list(shared_.outgoing[slot].send_list);
    }
    return nullptr;
}

// A queue in the network ends a window's growth, one in the receiver's sockets does not: that costs nothing but the
// caches through which all of it then passes. So no more is in flight to a peer than leaves to all of them in two round
// trips and two milliseconds, or than a cache holds in any case. On a long path what waits is little beside what is on
// its way.
std::uint64_t DataWriter::in_flight_bytes_max(const Peer& peer) const {
    constexpr Duration long_path = milliseconds(1), unread = milliseconds(2);
    constexpr std::uint64_t cached_bytes = 1 << 20;
    const Duration path = peer.rtt.min();
    if (path >= long_path) return UINT64_MAX;
    return std::max(cached_bytes,
                    shared_.send_rate.bytes_in_run_time() *
                        static_cast<std::uint64_t>((path * 2 + unread).value / RecentRate::run_time.value));
}

// What window and pace allow a run that starts now. False: nothing; the code that changes either calls refresh().
bool DataWriter::may_start_run(Peer& peer, Run& run, bool repairs) {
    SenderState& sender = peer.session->sender;
    run.window = std::min(sender.window(peer.datagram_bytes).value, in_flight_bytes_max(peer));
    run.allowed = run.window > sender.in_flight.value ? run.window - sender.in_flight.value : 0;
    if (sender.waits()) run.allowed = peer.datagram_bytes;
    const std::uint64_t pace = sender.pacer.allowed_bytes(run.now);
    if (pace < peer.datagram_bytes && pace < run.allowed) {
        sender.pace_at = sender.pacer.next(run.now);
        shared_.arm(peer);
        return false;
    }
    run.allowed = std::min(run.allowed, pace);
    if (sender.run_left == 0 || (repairs && sender.paths.doubtful(sender.run_path))) {
        const PathSet::Choice choice = sender.paths.choose(run.now, peer.rtt.smoothed(),
                                                           sender.run_length.paths(shared_.config.paths), repairs);
        sender.run_path = choice.path;
        sender.run_left = choice.single ? 1 : sender.run_length.next_run();
    }
    return true;
}

// The message gets its wire id with its first packet. False: it must wait.
bool DataWriter::start_message(Peer& peer, std::uint32_t slot, Time now) {
    if (!may_start_message(peer)) return false;
    SenderState& sender = peer.session->sender;
    OutgoingMessage& m = shared_.outgoing[slot];
    m.wire_id = sender.ids.end();
    sender.ids.extend(m.wire_id);
    sender.ids[m.wire_id] = slot;
    sender.started.push_back(shared_.outgoing, slot);
    if (!peer.waiting) liveness_.update(now, peer);
    return true;
}

// Adds the next block of this message to the run. False: it does not fit, or would need another TOS or header.
bool DataWriter::add_block(Peer& peer, Run& run, PacketBuilder& packet, std::uint32_t slot) {
    SenderState& sender = peer.session->sender;
    OutgoingMessage& m = shared_.outgoing[slot];
    const OutgoingMessage::Next next = m.peek();
    if (run.size > 0 && next.critical != run.critical) return false;
    const std::uint32_t payload_bytes = m.payload_bytes(next.block);
    wire::Type type = m.taken() ? wire::type_for_known(payload_bytes) : wire::Type::data;
    std::uint32_t datagram = run.counted_bytes(payload_bytes);
    std::size_t saved = wire::header_bytes - wire::header_bytes_of(type);
    std::size_t pieces = 0;
    if (datagram - saved > peer.datagram_bytes) [[unlikely]] {
        // A run of its own. It may exceed the window, which may be smaller than the block by now.
        pieces = pieces_.count(peer, run.keyed, datagram);
        if (run.size > 0 || sender.sent.room() <= pieces) return false;
        datagram +=
            static_cast<std::uint32_t>(pieces * (peer.datagram_bytes - pieces_.bytes_each(peer, run.keyed)));
        type = wire::Type::data;  // pieces are counted by it
        saved = 0;
    }
    const std::uint64_t bytes = run.bytes + std::min<std::uint32_t>(datagram, peer.datagram_bytes);
    if (run.in_pieces || (bytes > run.allowed && !(sender.in_flight.value == 0 && run.size == 0))) return false;
    if (run.size > 0 && type != packet.header.type) return false;
    run.in_pieces = pieces > 0;
    for (; pieces > 0; --pieces) sender.sent.skip();
    m.take(next);
    if (run.now >= m.patient_until) m.give_up_rest();
    run.critical = next.critical;

    wire::Header& h = packet.header;
    h.type = type;
    const bool is_virtual = m.payload == nullptr && payload_bytes > 0;
    h.flags = static_cast<std::uint8_t>(
        (run.keyed ? wire::flag::authenticated : 0) | (next.critical ? wire::flag::critical : 0) |
        (next.repair ? wire::flag::repair : 0) |
        (run.keyed && shared_.config.encrypt && !is_virtual ? wire::flag::encrypted : 0));
    h.importance = m.importance(next.block);
    h.block_index = next.block;
    h.payload_bytes = static_cast<std::uint16_t>(payload_bytes);
    h.packet_number = sender.sent.push({.sent_at = run.now,
                                        .message_slot = slot,
                                        .message_generation = shared_.outgoing.generation(slot),
                                        .block = next.block,
                                        .bytes = static_cast<std::uint16_t>(datagram),
                                        .path = h.path,
                                        .traffic_class = h.traffic_class,
                                        .saved = static_cast<std::uint8_t>(saved)});
    ++sender.awaiting;
    const std::uint8_t* const payload =
        is_virtual || payload_bytes == 0 ? nullptr : m.payload + std::size_t{next.block} * m.block_bytes();
    // Where this thread is to read it: to make its tag, or to copy it.
    if (payload != nullptr && (run.keyed || run.adjoins)) prefetch_payload<false>(payload, payload_bytes);
    packet.write_data(
        run.slots[run.size], peer.address,
        type_of_service(shared_.config, h.traffic_class, next.critical ? Ecn::capable : Ecn::not_capable), payload,
        is_virtual);
    run.blocks[run.size++] = {slot, next.block, h.packet_number, next.repair};
    run.bytes += datagram;
    run.saved += saved;
    shared_.counters.header_bytes_sent += datagram - payload_bytes - saved;
    sender.paths.on_sent(h.path);
    shared_.counters.data_bytes_sent += payload_bytes;
    if (next.repair) {
        ++shared_.counters.repair_packets_sent;
        shared_.counters.repair_bytes_sent += payload_bytes;
        m.retransmitted_bytes += payload_bytes;
    }
    return true;
}

// Blocks of one message after the other, until the run is full.
void DataWriter::fill_run(Peer& peer, SendQueue& queue, const SendList& list, Run& run, PacketBuilder& packet) {
    std::uint32_t slot = Link::none;
    while (run.size < run.slots.size()) {
        if (slot == Link::none || slot != list.front()) {
            slot = list.front();
            const OutgoingMessage& m = shared_.outgoing[slot];
            if (m.wire_id == 0 && !start_message(peer, slot, run.now)) return;
            wire::Header& h = packet.header;
            h.tag = m.tag;
            h.message_id = m.wire_id;
            h.message_bytes = m.message_bytes;
            h.critical_blocks = m.critical_blocks();
            h.block_bytes = m.block_bytes();
            h.budget = m.budget;
            h.deadline = m.deadline;
        }
        if (!add_block(peer, run, packet, slot)) return;
        if (shared_.outgoing[slot].has_block_to_send()) continue;
        queue.remove(shared_.outgoing, slot);
        slot = Link::none;
        if (!find_work(queue, list)) return;
    }
}

// A packet asks for an acknowledgement four times per window, and when no packet follows for now: no data is left, or
// the window or the pace ends while no packet in flight has asked. If one has, its answer releases the next packets;
// asking with each packet would cost one answer per packet while the window is full.
bool DataWriter::asks_for_acknowledgement(const Peer& peer, const Run& run) const {
    const SenderState& sender = peer.session->sender;
    const bool more = sender.has_queued() && (run.bytes + peer.datagram_bytes <= run.allowed ||
                                              sender.unrequested_bytes < sender.in_flight.value);
    return !more || sender.unrequested_bytes * 4 >= run.window;
}

// Accounts for a run, and sets what is known only now: the last flags of its packets, and their tags.
void DataWriter::finish_run(Peer& peer, Run& run) {
    SenderState& sender = peer.session->sender;
    if (sender.in_flight.value == 0) sender.last_progress = run.now;
    sender.run_left = static_cast<std::uint16_t>(sender.run_left - run.size);
    sender.in_flight += Bytes{run.bytes};
    sender.unrequested_bytes += run.bytes;
    credit_.sent(run.bytes);
    shared_.send_rate.add(run.now, run.bytes);
    sender.pacer.on_sent(run.now, {run.bytes - run.saved});
    shared_.counters.data_packets_sent += run.size;

    if (run.size == 1 && !run.in_pieces) {
        run.slots[0].flags |= DLCP_PACKET_ALONE;
        sender.sent[run.last().number].alone = true;
    }
    const bool request = asks_for_acknowledgement(peer, run);
    if (request) sender.unrequested_bytes = 0;
    // One piece of memory costs a kernel half of what a header and a payload for each packet cost, and whoever makes a tag
    // brings the payload into the cache anyway.
    const bool end_to_end = run.adjoins && !run.in_pieces && PacketBuilder::fits_head(run.slots[0]);
    std::uint8_t* at = run.slots[0].head;
    for (std::size_t i = 0; i < run.size; ++i) {
        // Only on the last packet of a message: the receiver infers that no packet of the pass follows in its lane.
        const bool last_of_message = i + 1 == run.size || run.blocks[i + 1].slot != run.blocks[i].slot;
        std::uint8_t flags = 0;
        if (last_of_message && shared_.outgoing[run.blocks[i].slot].first_pass_over()) {
            flags |= wire::flag::first_pass_over;
            OutgoingMessage& m = shared_.outgoing[run.blocks[i].slot];
            if (m.tolerant()) m.pass_end = std::min(m.pass_end, run.blocks[i].number);
        }
        if (request && i + 1 == run.size) flags |= wire::flag::ack_request;
        dlcp_packet& slot = run.slots[i];
        PacketBuilder::add_flags(slot, flags);
        if (end_to_end) PacketBuilder::move(slot, at, !(run.keyed && shared_.config.encrypt));
        if (run.keyed)
            PacketBuilder::seal(slot, peer.session->keys.send(), run.blocks[i].number, shared_.config.encrypt);
        at = slot.head + slot.head_bytes + slot.tail_bytes;
    }
    OutgoingMessage& last = shared_.outgoing[run.last().slot];
    if (!sender.has_queued() && run.critical && !run.last().repair && peer.loss_share > loss_share_for_copies &&
        last.first_pass_over()) {
        // No later packet would reveal the loss of this one, and waiting for a probe takes several round trips.
        last.on_lost(run.last().block);
        outgoing_.enqueue(run.last().slot, true);
    }
}

std::size_t DataWriter::transmit_run(Time now, Peer& peer, std::uint8_t traffic_class,
                                     std::span<dlcp_packet> slots) {
    SenderState& sender = peer.session->sender;
    SendQueue& queue = sender.queues[traffic_class];
    const SendList* const list = sender.sent.full() ? nullptr : list_for_run(peer, queue);
    if (list == nullptr) return 0;
    // A sender that waits for its turn sends one packet of each message that the receiver does not know yet.
    OutgoingMessage& next = shared_.outgoing[list->front()];
    if (sender.waits() && next.wire_id != 0 && (next.taken() || sender.in_flight.value > 0)) return 0;
    const bool was_idle = sender.awaiting == 0 || sender.in_flight.value == 0;
    Run run;
    run.now = now;
    run.keyed = peer.protects();
    if (!may_start_run(peer, run, next.peek().repair)) return 0;
    run.slots =
        slots.first(std::min<std::size_t>({slots.size(), sender.run_left, Run::longest, sender.sent.room()}));
    // What a channel carries is copied by the driver, and from where it lies.
    run.adjoins = (slots[0].flags & DLCP_PACKET_ADJOINS) != 0 && !is_trusted(peer.address);
    // Kept apart from the run, so that it can stay in registers.
    PacketBuilder packet(shared_.config, wire::Type::data, traffic_class, peer.handshake.peer_session, now);
    packet.header.key_epoch = peer.session->keys.send_epoch();
    packet.header.path = sender.run_path;
    fill_run(peer, queue, *list, run, packet);
    if (run.size == 0) return 0;
    queue.on_run(*list);
    finish_run(peer, run);
    std::size_t packets = run.size;
    if (run.in_pieces) [[unlikely]] {
        pieces_.cut(peer, run.slots[0], packet.header);
        packets = pieces_.send(now, slots);
    }
    // Later packets change no deadline: deadlines count from the last progress.
    if (was_idle || !peer.waiting) liveness_.update(now, peer);
    return packets;
}

std::size_t DataWriter::poll(Time now, std::span<dlcp_packet> slots) {
    std::size_t n = 0;
    // The highest class first; a class that became ready meanwhile waits for the next call.
    for (std::uint32_t left = shared_.ready_classes; left != 0 && n < slots.size();) {
        const auto c = static_cast<std::uint32_t>(std::bit_width(left)) - 1;
        left &= ~(1u << c);
        RingQueue<std::uint32_t>& ready = shared_.ready[c];
        while (!ready.empty() && n < slots.size()) {
            Peer& peer = *shared_.peers[ready.front()];
            ready.pop();
            const std::uint8_t bit = static_cast<std::uint8_t>(1u << c);
            peer.ready_classes &= static_cast<std::uint8_t>(~bit);
            if (!peer.up()) continue;
            const std::size_t sent = transmit_run(now, peer, static_cast<std::uint8_t>(c), slots.subspan(n));
            n += sent;
            // Nothing sent: blocked by window, pacer or ring; the code that unblocks it calls refresh().
            if (sent > 0 && !peer.session->sender.queues[c].empty()) {
                peer.ready_classes |= bit;
                ready.push(peer.index);
            }
        }
        if (ready.empty()) shared_.ready_classes &= static_cast<std::uint8_t>(~(1u << c));
    }
    return n;
}

}  // namespace dlcp

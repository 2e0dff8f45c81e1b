#include "io/dpdk/transmit.hpp"

#include <rte_ethdev.h>
#include <rte_pause.h>
#include <sched.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "io/clock.hpp"
#include "ipstack/checksum.hpp"

namespace dlcp::dpdk {

using ipstack::Checksums;

namespace {

static_assert(ipstack::headers_bytes_max <= RTE_PKTMBUF_HEADROOM);

std::uint8_t* head_of(const rte_mbuf* frame) {
    return static_cast<std::uint8_t*>(frame->buf_addr) + RTE_PKTMBUF_HEADROOM;
}

rte_mbuf* frame_of(const dlcp_packet& packet) { return reinterpret_cast<rte_mbuf*>(packet.cookie); }

// UDP payload of a finished frame: headers end where the head lies.
std::uint32_t payload_bytes(const rte_mbuf* frame) {
    return frame->pkt_len - (RTE_PKTMBUF_HEADROOM - frame->data_off);
}

}  // namespace

Transmitter::Transmitter(std::span<Uplink> uplinks, AddressPairs& pairs, const TransmitConfig& config,
                         dlcp_io_counters& counters, DriverEvents& events)
    : uplinks_(uplinks),
      pairs_(pairs),
      config_(config),
      counters_(counters),
      events_(events),
      gather_bytes_min_(config.payload == PayloadMode::gather ? gather_bytes_min : automatic_gather_bytes_min) {
    bool gather = false;
    std::size_t queues = 0;
    for (std::size_t i = 0; i < uplinks_.size(); ++i) {
        const PortAbilities& abilities = uplinks_[i].port->abilities();
        uplinks_[i].probing = config_.payload != PayloadMode::copy && abilities.gathers &&
                              config_.max_datagram_bytes >= gather_bytes_min_;
        gather |= uplinks_[i].probing;
        first_batch_.push_back(static_cast<std::uint32_t>(queues));
        for (std::uint16_t queue = 0; queue < abilities.queues; ++queue, ++queues)
            batches_.push_back({.uplink = static_cast<std::uint16_t>(i), .queue = queue});
    }
    // Two segments per packet of all batches: every one is free again after its burst.
    if (gather && !segments_.open(static_cast<std::uint32_t>(2 * burst_packets_max * queues), SOCKET_ID_ANY))
        for (Uplink& uplink : uplinks_) uplink.probing = false;
}

Transmitter::~Transmitter() {
    statistics_.pending_dropped_packets += pending_.clear();
    rte_pktmbuf_free_bulk(spare_.data(), spare_used_);
}

// ---- lending ----

int Transmitter::get(dlcp_packet* packets, int count) {
    if (count <= 0) return 0;
    const std::uint32_t wanted = std::min(static_cast<std::uint32_t>(count), burst_packets_max - lent_);
    if (spare_used_ < wanted) refill(wanted);
    const std::uint32_t lend = std::min(wanted, spare_used_);
    for (std::uint32_t i = 0; i < lend; ++i) {
        rte_mbuf* const frame = spare_[--spare_used_];
        packets[i] = {};
        packets[i].head = head_of(frame);
        packets[i].cookie = reinterpret_cast<std::uintptr_t>(frame);
    }
    lent_ += lend;
    return static_cast<int>(lend);
}

// All ports' pools do for all ports, since a buffer goes back to where it came from.
bool Transmitter::refill(std::uint32_t wanted) {
    for (const Uplink& uplink : uplinks_) {
        for (std::uint32_t more = wanted - spare_used_; more > 0; more /= 2) {
            if (rte_pktmbuf_alloc_bulk(uplink.port->transmit_pool(), spare_.data() + spare_used_, more) != 0)
                continue;
            spare_used_ += more;
            break;
        }
        if (spare_used_ == wanted) break;
    }
    if (spare_used_ > 0) {
        told_of_no_buffers_ = false;
        return true;
    }
    ++statistics_.no_buffer_calls;
    if (!told_of_no_buffers_) {
        events_.tell(monotonic_ns(), DLCP_IO_NO_BUFFERS,
                     "port %s: no packet buffer for sending is free: its queue does not empty",
                     uplinks_.front().port->name().c_str());
        told_of_no_buffers_ = true;
    }
    return false;
}

void Transmitter::give_back(rte_mbuf* frame) {
    if (spare_used_ < spare_.size())
        spare_[spare_used_++] = frame;
    else
        rte_pktmbuf_free(frame);
}

// ---- sending ----

int Transmitter::put(Time now, const dlcp_packet* packets, int count) {
    if (count <= 0) return 0;
    ++put_number_;
    sent_packets_ = 0;
    wait_left_ns_ = send_wait_ns_max;
    Route route;
    const dlcp_address* last_address = nullptr;
    std::uint16_t last_path = 0;
    for (int i = 0; i < count; ++i) {
        const dlcp_packet& packet = packets[i];
        rte_mbuf* const frame = frame_of(packet);
        if (packet.head_bytes == 0) {
            if (frame != nullptr) give_back(frame);
            continue;
        }
        bool good = deliverable(packet, frame);
        if (good && (packet.address != last_address || packet.path != last_path)) {
            last_address = packet.address;
            last_path = packet.path;
            if (!choose_route(now, packet, route)) route.uplink = nullptr;
        }
        good = good && route.uplink != nullptr &&
               packet.head_bytes + packet.body_bytes + packet.tail_bytes <= config_.max_datagram_bytes;
        std::uint64_t sum = 0;
        if (!good || !append_payload(route, packet, frame, sum)) {
            ++counters_.tx_dropped_packets;
            if (frame != nullptr) give_back(frame);
            continue;
        }
        route.marking.tos = packet.tos;  // packets of one route may differ in it
        if (!route.destination->resolved) {
            wait_for_neighbour(now, route, frame, sum);
            continue;
        }
        finish(*route.destination, route.marking, *route.uplink, sum, frame);
        add(*route.batch, frame);
    }
    flush_all();
    lent_ -= std::min(lent_, static_cast<std::uint32_t>(count));
    return static_cast<int>(sent_packets_);
}

// What would be read from memory that is not there, or is no datagram at all.
bool Transmitter::deliverable(const dlcp_packet& packet, const rte_mbuf* frame) const {
    return frame != nullptr && packet.head == head_of(frame) && packet.address != nullptr &&
           packet.address->length != 0 && packet.head_bytes <= DLCP_HEAD_CAPACITY &&
           packet.tail_bytes <= DLCP_HEAD_CAPACITY - packet.head_bytes && packet.body_bytes <= UINT16_MAX &&
           (packet.body != nullptr || packet.body_bytes == 0);
}

bool Transmitter::choose_route(Time now, const dlcp_packet& packet, Route& route) {
    const std::uint16_t path = packet.path % config_.paths;
    AddressPair* pair = nullptr;
    try {
        pair = pairs_.find(now, *packet.address, path);
    } catch (const std::bad_alloc&) {
        // No memory for one more peer: it cannot be reached.
    }
    if (pair == nullptr) return false;
    Uplink& uplink = uplinks_[pair->uplink];
    route.uplink = &uplink;
    route.destination = pair->destination;
    // The paths of one address pair over all of its port's queues.
    route.batch = &batch_of(pair->uplink, path / pair->count % uplink.port->abilities().queues);
    route.marking = ipstack::marking_of_path(*pair->destination, config_.udp_port, path, packet.tos);
    route.sums = uplink.checksums == Checksums::software ||
                 (uplink.checksums == Checksums::none && pair->destination->is_v6);
    if (pair->burst != put_number_) {
        pair->burst = put_number_;
        if (pair->destination->resolved)
            uplink.interface->used(now, *pair->destination);
        else
            uplink.interface->ask(now, *pair->destination);
    }
    return true;
}

bool Transmitter::append_payload(const Route& route, const dlcp_packet& packet, rte_mbuf* frame,
                                 std::uint64_t& sum) {
    frame->ol_flags = 0;
    frame->data_off = RTE_PKTMBUF_HEADROOM;
    const bool gather =
        route.uplink->gathers && packet.body_bytes >= gather_bytes_min_ && route.destination->resolved;
    if (gather) return link_payload(packet, route.sums, frame, sum);
    copy_payload(packet, route.sums, frame, sum);
    return true;
}

void Transmitter::copy_payload(const dlcp_packet& packet, bool sums, rte_mbuf* frame, std::uint64_t& sum) {
    std::uint8_t* const body = packet.head + packet.head_bytes;
    std::uint8_t* const tail = body + packet.body_bytes;
    const std::uint32_t bytes = packet.head_bytes + packet.body_bytes + packet.tail_bytes;
    frame->data_len = static_cast<std::uint16_t>(bytes);
    frame->pkt_len = bytes;
    if (packet.body_bytes == 0) {
        if (sums) sum = ipstack::add_words(0, packet.head, bytes);
        return;
    }
    ++statistics_.copied_packets;
    if (packet.tail_bytes > 0) memmove(tail, body, packet.tail_bytes);
    if (!sums) {
        memcpy(body, packet.body, packet.body_bytes);
        return;
    }
    sum = ipstack::add_words(0, packet.head, packet.head_bytes);
    sum = ipstack::copy_piece(sum, body, packet.body, packet.body_bytes, packet.head_bytes);
    sum = ipstack::add_piece(sum, tail, packet.tail_bytes, packet.head_bytes + packet.body_bytes);
}

bool Transmitter::link_payload(const dlcp_packet& packet, bool sums, rte_mbuf* frame, std::uint64_t& sum) {
    const std::uint8_t* const tail = packet.head + packet.head_bytes;
    frame->data_len = static_cast<std::uint16_t>(packet.head_bytes);
    frame->pkt_len = packet.head_bytes;
    rte_mbuf* last = frame;
    if (!segments_.append(frame, last, packet.body, packet.body_bytes) ||
        (packet.tail_bytes > 0 && !segments_.append(frame, last, tail, packet.tail_bytes))) {
        if (frame->next != nullptr) rte_pktmbuf_free(frame->next);
        frame->next = nullptr;
        frame->nb_segs = 1;
        return false;
    }
    ++statistics_.gathered_packets;
    if (sums) {
        sum = ipstack::add_words(0, packet.head, packet.head_bytes);
        sum = ipstack::add_piece(sum, packet.body, packet.body_bytes, packet.head_bytes);
        sum = ipstack::add_piece(sum, tail, packet.tail_bytes, packet.head_bytes + packet.body_bytes);
    }
    return true;
}

// Headers before the head.
void Transmitter::finish(const ipstack::Destination& destination, const ipstack::Marking& marking, Uplink& uplink,
                         std::uint64_t payload_sum, rte_mbuf* frame) const {
    std::uint8_t* const at = head_of(frame) - destination.headers_bytes;
    ipstack::write_headers(destination, marking, frame->pkt_len, uplink.checksums, payload_sum, at);
    frame->data_off = static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM - destination.headers_bytes);
    frame->data_len = static_cast<std::uint16_t>(frame->data_len + destination.headers_bytes);
    frame->pkt_len += destination.headers_bytes;
    if (uplink.checksums == Checksums::card) {
        frame->l2_len = destination.ip_offset;
        frame->l3_len = destination.is_v6 ? ipstack::ipv6_bytes : ipstack::ipv4_bytes;
        frame->l4_len = ipstack::udp_bytes;
        frame->ol_flags = RTE_MBUF_F_TX_UDP_CKSUM |
                          (destination.is_v6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM);
    }
}

void Transmitter::add(Batch& batch, rte_mbuf* frame) {
    if (batch.frames_used == batch.frames.size()) flush(batch);
    batch.frames[batch.frames_used++] = frame;
}

void Transmitter::flush(Batch& batch) {
    if (batch.frames_used == 0) return;
    std::uint64_t bytes = 0;
    for (std::uint16_t i = 0; i < batch.frames_used; ++i) bytes += payload_bytes(batch.frames[i]);
    const std::uint16_t sent = burst(uplinks_[batch.uplink], batch.queue, batch.frames.data(), batch.frames_used);
    for (std::uint16_t i = sent; i < batch.frames_used; ++i) bytes -= payload_bytes(batch.frames[i]);
    rte_pktmbuf_free_bulk(batch.frames.data() + sent, batch.frames_used - sent);
    counters_.tx_packets += sent;
    counters_.tx_bytes += bytes;
    counters_.tx_dropped_packets += static_cast<std::uint64_t>(batch.frames_used - sent);
    sent_packets_ += sent;
    batch.frames_used = 0;
}

void Transmitter::flush_all() {
    for (Batch& batch : batches_) flush(batch);
    if (segments_.in_use() == 0) return;
    // A port was wrong about finishing in the burst: no more of this.
    for (Uplink& uplink : uplinks_) uplink.gathers = false;
}

std::uint16_t Transmitter::burst(const Uplink& uplink, std::uint16_t queue, rte_mbuf** frames,
                                 std::uint16_t count) {
    if (!uplink.port->started()) return 0;
    const std::uint16_t port = uplink.port->id();
    std::uint16_t ready = count;
    // Some cards want their own start of the checksum in the header.
    if (uplink.checksums == Checksums::card) ready = rte_eth_tx_prepare(port, queue, frames, count);
    std::uint16_t sent = 0;
    std::int64_t start_ns = 0;
    for (int attempt = 0;; ++attempt) {
        ++counters_.tx_calls;
        sent = static_cast<std::uint16_t>(
            sent + rte_eth_tx_burst(port, queue, frames + sent, static_cast<std::uint16_t>(ready - sent)));
        if (sent == ready || !uplink.port->up() || wait_left_ns_ <= 0) break;
        const std::int64_t now_ns = monotonic_ns();
        if (start_ns == 0) {
            start_ns = now_ns;
            ++statistics_.full_queue_waits;
        } else if (now_ns - start_ns > wait_left_ns_) {
            break;
        }
        // A card empties its queue by itself; a virtual device's reader may need this core.
        if (attempt < 16)
            rte_pause();
        else
            sched_yield();
    }
    if (start_ns != 0) wait_left_ns_ -= monotonic_ns() - start_ns;
    return sent;
}

// ---- waiting for a neighbour ----

void Transmitter::wait_for_neighbour(Time now, const Route& route, rte_mbuf* frame, std::uint64_t sum) {
    ++statistics_.pending_packets;
    ++sent_packets_;  // taken; counted as sent or dropped when that is known
    const std::size_t dropped = pending_.add({.frame = frame,
                                              .destination = route.destination,
                                              .uplink = route.batch->uplink,
                                              .queue = route.batch->queue,
                                              .marking = route.marking,
                                              .payload_sum = sum,
                                              .since_ns = now.value});
    statistics_.pending_dropped_packets += dropped;
    counters_.tx_dropped_packets += dropped;
}

void Transmitter::handle_pending(Time now) {
    if (pending_.empty()) return;
    wait_left_ns_ = send_wait_ns_max;
    pending_.take_resolved([&](const PendingPacket& packet) {
        if (!uplinks_[packet.uplink].port->up()) return false;  // a device without a link takes nothing
        finish(*packet.destination, packet.marking, uplinks_[packet.uplink], packet.payload_sum, packet.frame);
        add(batch_of(packet.uplink, packet.queue), packet.frame);
        return true;
    });
    flush_all();
    const std::size_t expired = pending_.expire(now.value);
    statistics_.pending_dropped_packets += expired;
    counters_.tx_dropped_packets += expired;
}

void Transmitter::send_own_frames(Uplink& uplink) {
    for (;;) {
        rte_mbuf* frame = rte_pktmbuf_alloc(uplink.port->transmit_pool());
        if (frame == nullptr) return;  // they stay queued, bounded, and go the next time
        const std::span<std::uint8_t> room(rte_pktmbuf_mtod(frame, std::uint8_t*), rte_pktmbuf_tailroom(frame));
        const std::size_t bytes = uplink.interface->next_frame(room);
        if (bytes == 0) {
            rte_pktmbuf_free(frame);
            return;
        }
        frame->data_len = static_cast<std::uint16_t>(bytes);
        frame->pkt_len = static_cast<std::uint32_t>(bytes);
        if (!uplink.port->started() || rte_eth_tx_burst(uplink.port->id(), 0, &frame, 1) == 0)
            rte_pktmbuf_free(frame);
    }
}

void Transmitter::probe(Time now, Uplink& uplink) {
    if (now.value < uplink.probe_due_ns) return;
    uplink.probe_due_ns = now.value + Port::link_check_ns;
    if (!uplink.port->probe_finishes_in_burst()) return;
    uplink.probing = false;
    uplink.gathers = uplink.port->abilities().finishes_in_burst;
}

}  // namespace dlcp::dpdk

// Takes bursts apart into datagrams and frames for the interface.
#include "io/dpdk/receive.hpp"

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_prefetch.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <new>

namespace dlcp::dpdk {

using ipstack::CardChecksum;

namespace {

constexpr std::uint8_t ecn_mask = 3;
constexpr std::uint8_t ecn_ce = 3;  // congestion experienced, RFC 3168 section 5

// In a buffer's hash field while it is lent: what comes back twice is not freed twice.
constexpr std::uint32_t lent_mark = 0x646c6370;

CardChecksum ip_checksum(const rte_mbuf& frame) {
    switch (frame.ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) {
        case RTE_MBUF_F_RX_IP_CKSUM_GOOD:
        case RTE_MBUF_F_RX_IP_CKSUM_NONE:
            return CardChecksum::good;  // not written, yet known to be whole: rte_mbuf_core.h
        case RTE_MBUF_F_RX_IP_CKSUM_BAD: return CardChecksum::bad;
        default: return CardChecksum::unknown;
    }
}

CardChecksum udp_checksum(const rte_mbuf& frame) {
    switch (frame.ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) {
        case RTE_MBUF_F_RX_L4_CKSUM_GOOD:
        case RTE_MBUF_F_RX_L4_CKSUM_NONE: return CardChecksum::good;  // never left a host: nothing to check
        case RTE_MBUF_F_RX_L4_CKSUM_BAD: return CardChecksum::bad;
        default: return CardChecksum::unknown;
    }
}

// Buffers on their way back to their pool. What rte_pktmbuf_free_bulk does, in one pass over them and in line.
class Returned {
public:
    Returned() = default;
    ~Returned() { put(); }
    Returned(const Returned&) = delete;
    Returned& operator=(const Returned&) = delete;

    void add(rte_mbuf* frame) {
        if (frame->nb_segs != 1) return rte_pktmbuf_free(frame);
        frame = rte_pktmbuf_prefree_seg(frame);
        if (frame == nullptr) return;  // somebody else has it too
        if (used_ == frames_.size() || frame->pool != pool_) {
            put();
            pool_ = frame->pool;
        }
        frames_[used_++] = frame;
    }

private:
    void put() {
        if (used_ > 0) rte_mempool_put_bulk(pool_, frames_.data(), used_);
        used_ = 0;
    }

    rte_mempool* pool_ = nullptr;
    std::array<void*, 64> frames_;
    unsigned used_ = 0;
};

}  // namespace

Receiver::Receiver(std::span<Uplink> uplinks, dlcp_io_counters& counters)
    : uplinks_(uplinks), counters_(counters) {
    for (std::size_t i = 0; i < uplinks_.size(); ++i)
        for (std::uint16_t queue = 0; queue < uplinks_[i].port->abilities().queues; ++queue)
            queues_.push_back({.uplink = static_cast<std::uint16_t>(i), .queue = queue});
}

Receiver::~Receiver() { done(kept_.data() + kept_first_, kept_used_); }

int Receiver::receive(Time now, dlcp_packet* packets, int count) {
    if (count <= 0) return 0;
    int received = std::min(count, kept_used_);
    if (received > 0) {
        std::copy_n(kept_.begin() + kept_first_, received, packets);
        kept_first_ += received;
        kept_used_ -= received;
    }
    if (received < count) received += collect(now, packets + received, count - received);
    return received;
}

bool Receiver::poll(Time now) {
    if (kept_used_ == 0) {
        kept_first_ = 0;
        kept_used_ = collect(now, kept_.data(), kept_packets_max);
    }
    return kept_used_ > 0;
}

// Each queue in turn until it is empty; another one is first in the next round, so that none starves.
int Receiver::collect(Time now, dlcp_packet* packets, int count) {
    ++round_;
    int received = 0;
    int others_left = other_frames_max;
    const std::size_t first = first_queue_;
    first_queue_ = first + 1 < queues_.size() ? first + 1 : 0;
    for (std::size_t i = 0; i < queues_.size() && received < count; ++i) {
        const std::size_t at = first + i;
        const Queue& queue = queues_[at < queues_.size() ? at : at - queues_.size()];
        for (int frames = full_burst_frames; received < count && others_left > 0 && frames >= full_burst_frames;) {
            const int found = read_burst(now, queue, packets + received, count - received, frames);
            received += found;
            others_left -= frames - found;
        }
    }
    return received;
}

// `frames`: how many the device gave.
int Receiver::read_burst(Time now, const Queue& queue, dlcp_packet* packets, int room, int& frames) {
    frames = 0;
    if (!uplinks_[queue.uplink].port->started()) return 0;
    std::array<rte_mbuf*, burst_frames_max> burst;
    const auto wanted = static_cast<std::uint16_t>(std::min<int>(room, burst_frames_max));
    ++counters_.rx_calls;
    const std::uint16_t count =
        rte_eth_rx_burst(uplinks_[queue.uplink].port->id(), queue.queue, burst.data(), wanted);
    frames = count;
    int received = 0;
    for (std::uint16_t i = 0; i < count; ++i) {
        bool accepted = false;
        try {
            accepted = accept(now, queue.uplink, burst[i], packets[received]);
        } catch (const std::bad_alloc&) {
            // Of an interface, about neighbours. A station that asked will ask again.
        }
        if (accepted)
            ++received;
        else
            rte_pktmbuf_free(burst[i]);
    }
    return received;
}

// Fills `packet` if the frame is a datagram for the engine; else the frame is the caller's to free.
bool Receiver::accept(Time now, std::uint16_t uplink, rte_mbuf* frame, dlcp_packet& packet) {
    // A frame in pieces, when it is longer than a buffer: one buffer holds the MTU, so this is rare.
    if (frame->nb_segs > 1 && rte_pktmbuf_linearize(frame) != 0) {
        ++counters_.rx_truncated_packets;
        return false;
    }
    ipstack::Interface& interface = *uplinks_[uplink].interface;
    const std::span<const std::uint8_t> bytes(rte_pktmbuf_mtod(frame, const std::uint8_t*), frame->data_len);
    ipstack::Datagram datagram;
    switch (interface.read(bytes, ip_checksum(*frame), udp_checksum(*frame), datagram)) {
        case ipstack::FrameKind::datagram: break;
        case ipstack::FrameKind::other:
            handled_ = true;
            interface.handle_frame(now, bytes);
            return false;
        case ipstack::FrameKind::refused: return false;
    }
    if (datagram.payload_bytes > DLCP_HEAD_CAPACITY) {  // longer than anything the engine makes room for
        ++counters_.rx_truncated_packets;
        return false;
    }
    const dlcp_address& source = source_of(now, uplink, datagram);
    // Over the last of the headers, which are at least 42 bytes.
    static_assert(sizeof(dlcp_address) <= ipstack::ethernet_bytes + ipstack::ipv4_bytes + ipstack::udp_bytes);
    std::uint8_t* const payload = const_cast<std::uint8_t*>(datagram.payload);
    std::uint8_t* const address = payload - sizeof(dlcp_address);
    memcpy(address, &source, sizeof source);
    frame->hash.usr = lent_mark;
    packet = {.head = payload,
              .body = nullptr,
              .address = reinterpret_cast<const dlcp_address*>(address),
              .head_bytes = datagram.payload_bytes,
              .body_bytes = 0,
              .tail_bytes = 0,
              .path = 0,
              .tos = datagram.tos,
              .flags = 0,
              .arrival_ns = 0,
              .cookie = reinterpret_cast<std::uintptr_t>(frame)};
    ++counters_.rx_packets;
    counters_.rx_bytes += datagram.payload_bytes;
    if ((datagram.tos & ecn_mask) == ecn_ce) ++counters_.ce_packets;
    return true;
}

const dlcp_address& Receiver::source_of(Time now, std::uint16_t uplink, const ipstack::Datagram& datagram) {
    const ipstack::UdpAddress& from = datagram.source;
    std::uint32_t last_word;
    memcpy(&last_word, from.ip.bytes.data() + (from.ip.is_v6() ? 12 : 0), sizeof last_word);
    const std::uint32_t mixed = (last_word ^ from.port * 0x9e3779b9u) * 0x85ebca6bu;
    Source& source = sources_[mixed >> 26];
    static_assert(sizeof sources_ / sizeof sources_[0] == 64);
    if (source.uplink != uplink || !(source.udp == from))
        source = {.udp = from, .uplink = uplink, .heard_round = 0, .address = ipstack::to_dlcp(from)};
    if (source.heard_round != round_) {
        source.heard_round = round_;
        uplinks_[uplink].interface->heard(now, datagram);
    }
    return source.address;
}

void Receiver::done(const dlcp_packet* packets, int count) {
    Returned returned;
    for (int i = 0; i < count; ++i) {
        auto* const frame = reinterpret_cast<rte_mbuf*>(packets[i].cookie);
        if (frame == nullptr || frame->hash.usr != lent_mark) continue;  // given back twice
        frame->hash.usr = 0;
        returned.add(frame);
    }
}

}  // namespace dlcp::dpdk

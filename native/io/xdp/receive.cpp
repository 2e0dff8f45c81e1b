// Reads the queues in turn and gives chunks back to them.
#include "io/xdp/receive.hpp"

#include <linux/bpf.h>
#include <string.h>

#include <algorithm>

namespace dlcp::xdp {

namespace {

constexpr std::uint8_t ecn_mask = 3;
constexpr std::uint8_t ecn_ce = 3;  // congestion experienced, RFC 3168 section 5

}  // namespace

Receiver::Receiver(std::span<const std::unique_ptr<Queue>> queues, ipstack::Interface& interface,
                   dlcp_io_counters& counters)
    : queues_(queues), interface_(interface), counters_(counters) {}

bool Receiver::has_work() const {
    return std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->has_received(); });
}

int Receiver::receive(Time now, dlcp_packet* packets, int count) {
    last_source_ = {};
    int received = 0;
    for (std::size_t i = 0; i < queues_.size() && received < count; ++i)
        received += take((next_queue_ + i) % queues_.size(), now, packets + received, count - received);
    if (++next_queue_ >= queues_.size()) next_queue_ = 0;
    if (received > 0) ++counters_.rx_calls;
    return received;
}

int Receiver::take(std::size_t index, Time now, dlcp_packet* packets, int count) {
    Queue& queue = *queues_[index];
    if (!queue.has_received()) queue.poll_card();
    int filled = 0;
    bool recycled = false;
    for (int left = count * frames_per_packet; left > 0 && filled < count;) {
        std::uint32_t first = 0;
        const std::uint32_t frames = queue.peek(static_cast<std::uint32_t>(count - filled), first);
        if (frames == 0) break;
        for (std::uint32_t i = 0; i < frames; ++i) {
            const xdp_desc& frame = queue.received(first + i);
            if (read(queue, frame, now, packets[filled])) {
                packets[filled++].cookie = std::uint64_t{index} << queue_shift | Queue::chunk_of(frame.addr);
            } else {
                queue.recycle(Queue::chunk_of(frame.addr));
                recycled = true;
            }
        }
        queue.release(frames);
        left -= static_cast<int>(frames);
    }
    if (recycled) queue.refill();
    return filled;
}

bool Receiver::read(Queue& queue, const xdp_desc& frame, Time now, dlcp_packet& out) {
    const std::span<const std::uint8_t> bytes(queue.at(frame.addr), frame.len);
    ipstack::Datagram datagram;
    const ipstack::FrameKind kind =
        interface_.read(bytes, ipstack::CardChecksum::unknown, ipstack::CardChecksum::unknown, datagram);
    if (kind == ipstack::FrameKind::other) interface_.handle_frame(now, bytes);
    if (kind != ipstack::FrameKind::datagram || datagram.payload_bytes == 0) return false;
    if (datagram.source != last_source_) {
        last_source_ = datagram.source;
        last_address_ = ipstack::to_dlcp(datagram.source);
        interface_.heard(now, datagram);
    }
    static_assert(sizeof last_address_ <= XDP_PACKET_HEADROOM);
    std::uint8_t* const headroom = queue.at(Queue::chunk_of(frame.addr));
    memcpy(headroom, &last_address_, sizeof last_address_);
    out = {.head = const_cast<std::uint8_t*>(datagram.payload),
           .body = nullptr,
           .address = reinterpret_cast<const dlcp_address*>(headroom),
           .head_bytes = datagram.payload_bytes,
           .body_bytes = 0,
           .tail_bytes = 0,
           .path = 0,
           .tos = datagram.tos,
           .flags = 0,
           .arrival_ns = 0,
           .cookie = 0};
    ++counters_.rx_packets;
    counters_.rx_bytes += datagram.payload_bytes;
    if ((datagram.tos & ecn_mask) == ecn_ce) ++counters_.ce_packets;
    return true;
}

void Receiver::done(const dlcp_packet* packets, int count) {
    std::uint64_t touched = 0;  // queues, one bit each
    for (int i = 0; i < count; ++i) {
        const std::uint64_t index = packets[i].cookie >> queue_shift;
        if (index >= queues_.size()) continue;  // not from receive()
        queues_[index]->recycle(packets[i].cookie & ((std::uint64_t{1} << queue_shift) - 1));
        touched |= std::uint64_t{1} << index;
    }
    for (std::size_t index = 0; index < queues_.size(); ++index)
        if ((touched >> index & 1) != 0) queues_[index]->refill();
}

}  // namespace dlcp::xdp

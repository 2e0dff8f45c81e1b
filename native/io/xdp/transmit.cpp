// Writes frames into chunks and has the kernel send them.
#include "io/xdp/transmit.hpp"

#include <string.h>

#include <algorithm>

#include "ipstack/checksum.hpp"

namespace dlcp::xdp {

using ipstack::Destination;
using ipstack::Marking;

Transmitter::Transmitter(Queue& queue, ipstack::Interface& interface, ipstack::Checksums checksums,
                         std::uint16_t paths, std::uint32_t max_datagram_bytes, dlcp_io_counters& counters)
    : queue_(queue),
      interface_(interface),
      checksums_(checksums),
      paths_(paths),
      max_datagram_bytes_(max_datagram_bytes),
      counters_(counters) {}

int Transmitter::get(Time now, dlcp_packet* packets, int count) {
    if (count <= 0) return 0;
    const auto wanted = std::min<std::uint32_t>(static_cast<std::uint32_t>(count), burst_packets_max);
    if (queue_.free_chunks() < wanted + own_chunks) queue_.kick(counters_.tx_calls);
    const std::uint32_t free = queue_.free_chunks();
    const std::uint32_t lent = std::min(wanted, free > own_chunks ? free - own_chunks : 0);
    if (lent == 0 && starved_since_ns_ == 0) starved_since_ns_ = now.value;
    if (lent > 0) starved_since_ns_ = 0;
    for (std::uint32_t i = 0; i < lent; ++i) {
        const std::uint64_t chunk = queue_.take();
        packets[i] = {};
        packets[i].head = queue_.at(chunk) + headroom_bytes;
        packets[i].cookie = chunk;
    }
    return static_cast<int>(lent);
}

int Transmitter::put(Time now, const dlcp_packet* packets, int count) {
    int taken = 0;
    last_ = nullptr;
    for (int i = 0; i < count; ++i) {
        const dlcp_packet& packet = packets[i];
        if (packet.head_bytes == 0) {
            queue_.give_back(packet.cookie);
            continue;
        }
        const Destination* destination = deliverable(packet) && link_up_ ? find(now, *packet.address) : nullptr;
        if (destination == nullptr) {
            queue_.give_back(packet.cookie);
            ++counters_.tx_dropped_packets;
            continue;
        }
        std::uint8_t* const behind = packet.head + packet.head_bytes;
        if (packet.tail_bytes > 0 && packet.body_bytes > 0)
            memmove(behind + packet.body_bytes, behind, packet.tail_bytes);
        if (packet.body_bytes > 0) memcpy(behind, packet.body, packet.body_bytes);
        const std::uint32_t bytes = packet.head_bytes + packet.body_bytes + packet.tail_bytes;
        const Marking marking =
            ipstack::marking_of_path(*destination, interface_.config().port, packet.path % paths_, packet.tos);
        if (destination->resolved) {
            send(*destination, marking, packet.cookie, bytes);
            ++taken;
            continue;
        }
        interface_.ask(now, *destination);
        if (waiting_.add(*destination, marking, now.value, {packet.head, bytes}))
            ++taken;
        else
            ++counters_.tx_dropped_packets;
        queue_.give_back(packet.cookie);
    }
    serve(now);
    return taken;
}

// Too long for a chunk, or for the interface, means that the memory is not there.
bool Transmitter::deliverable(const dlcp_packet& packet) const {
    return packet.address != nullptr && packet.head_bytes <= max_datagram_bytes_ &&
           packet.body_bytes <= max_datagram_bytes_ && packet.tail_bytes <= max_datagram_bytes_ &&
           packet.head_bytes + packet.body_bytes + packet.tail_bytes <= max_datagram_bytes_ &&
           (packet.body != nullptr || packet.body_bytes == 0);
}

const Destination* Transmitter::find(Time now, const dlcp_address& address) {
    if (last_ != nullptr && address.length == last_address_.length &&
        memcmp(address.bytes, last_address_.bytes, sizeof address.bytes) == 0) {
        return last_;
    }
    const ipstack::UdpAddress to = ipstack::from_dlcp(address);
    last_ = to.ip.present() ? interface_.reach(now, to) : nullptr;
    last_address_ = address;
    if (last_ != nullptr && last_->resolved) interface_.used(now, *last_);
    return last_;
}

void Transmitter::send(const Destination& destination, const Marking& marking, std::uint64_t chunk,
                       std::uint32_t payload_bytes) {
    std::uint8_t* const payload = queue_.at(chunk) + headroom_bytes;
    const bool sums = checksums_ == ipstack::Checksums::software || destination.is_v6;
    const std::uint64_t sum = sums ? ipstack::add_words(0, payload, payload_bytes) : 0;
    ipstack::write_headers(destination, marking, payload_bytes, checksums_, sum,
                           payload - destination.headers_bytes);
    queue_.append(chunk + headroom_bytes - destination.headers_bytes, destination.headers_bytes + payload_bytes);
    ++counters_.tx_packets;
    counters_.tx_bytes += payload_bytes;
}

void Transmitter::serve(Time now) {
    if (now >= interface_.next_deadline()) interface_.handle_timer(now);
    if (!waiting_.empty()) send_waiting(now);
    send_own_frames();
    queue_.submit();
    if (queue_.unsent())
        queue_.kick(counters_.tx_calls);
    else
        queue_.reap();
    // Seen here too, for the engine may have nothing more to ask buffers for.
    if (queue_.free_chunks() > own_chunks) starved_since_ns_ = 0;
}

void Transmitter::send_waiting(Time now) {
    if (link_up_ && interface_.resolutions() != resolutions_seen_) {
        bool all = true;
        const std::uint64_t resolutions = interface_.resolutions();
        waiting_.send_resolved([&](const Waiting::Packet& packet) {
            all = queue_.free_chunks() > 0;
            if (!all) return false;
            const std::uint64_t chunk = queue_.take();
            memcpy(queue_.at(chunk) + headroom_bytes, packet.payload.data(), packet.payload.size());
            send(*packet.destination, packet.marking, chunk, static_cast<std::uint32_t>(packet.payload.size()));
            return true;
        });
        if (all) resolutions_seen_ = resolutions;
    }
    counters_.tx_dropped_packets += waiting_.expire(now.value);
}

void Transmitter::send_own_frames() {
    while (queue_.free_chunks() > 0) {
        const std::uint64_t chunk = queue_.take();
        const std::size_t bytes = interface_.next_frame({queue_.at(chunk), chunk_bytes});
        if (bytes == 0 || !link_up_) {
            queue_.give_back(chunk);
            if (bytes == 0) return;
            continue;
        }
        queue_.append(chunk, static_cast<std::uint32_t>(bytes));
    }
}

}  // namespace dlcp::xdp

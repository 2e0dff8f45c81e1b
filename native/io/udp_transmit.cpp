// Gathers runs of packets into as few messages as the kernel allows, and handles what it refuses.
#include "io/udp_transmit.hpp"

#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include <algorithm>

#include "io/clock.hpp"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace dlcp::udp {

namespace {

// New sockets send TOS 0; packets with it need no control message.
constexpr std::uint8_t socket_default_tos = 0;

bool same_address(const dlcp_address* a, const dlcp_address* b) {
    return a == b || (a->length == b->length && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0);
}

// Errors with which a kernel or device refuses a super-packet (net/ipv4/udp.c, udp_send_skb: EINVAL or, in newer
// kernels, EMSGSIZE for segments longer than the MTU; EINVAL for a socket without checksums; EIO for a device
// without checksum offload, or IPsec). Its packets may still go singly.
bool refuses_segmentation(int number) {
    return number == EINVAL || number == EIO || number == EMSGSIZE || number == EOPNOTSUPP ||
           number == ENOPROTOOPT;
}

bool out_of_room(int number) {
    return number == EAGAIN || number == EWOULDBLOCK || number == ENOBUFS || number == ENOMEM;
}

template <class Value>
std::size_t put_control(std::uint8_t* at, int level, int type, Value value) {
    cmsghdr header = {};
    header.cmsg_level = level;
    header.cmsg_type = type;
    header.cmsg_len = CMSG_LEN(sizeof value);
    memcpy(at, &header, sizeof header);
    memcpy(at + CMSG_LEN(0), &value, sizeof value);
    return CMSG_SPACE(sizeof value);
}

}  // namespace

Transmitter::Transmitter(Sockets& sockets, int family, bool use_gso, dlcp_io_counters& counters)
    : sockets_(sockets), family_(family), use_gso_(use_gso), counters_(counters) {}

int Transmitter::get(dlcp_packet* packets, int count) {
    if (count <= 0) return 0;
    if (lent_ == 0) next_slot_ = 0;  // always the same few slots, still in the cache
    const std::uint32_t lend = std::min(static_cast<std::uint32_t>(count), burst_packets_max - lent_);
    for (std::uint32_t i = 0; i < lend; ++i) {
        packets[i] = {};
        packets[i].head = memory_.slot(next_slot_);
        packets[i].cookie = next_slot_;
        // Not where the ring begins again behind it.
        packets[i].flags = next_slot_ + (lend - i) <= burst_packets_max ? DLCP_PACKET_ADJOINS : 0;
        next_slot_ = (next_slot_ + 1) % burst_packets_max;
    }
    lent_ += lend;
    return static_cast<int>(lend);
}

int Transmitter::put(const dlcp_packet* packets, int count) {
    if (count <= 0) return 0;
    sent_packets_ = 0;
    wait_left_ns_ = send_wait_ns_max;
    for (int i = 0; i < count; ++i) {
        const dlcp_packet& packet = packets[i];
        if (packet.head_bytes == 0) continue;
        if (!deliverable(packet)) {
            drop(1);
            continue;
        }
        append(packet, packet.head_bytes + packet.body_bytes + packet.tail_bytes);
    }
    flush();
    lent_ -= std::min(lent_, static_cast<std::uint32_t>(count));
    return static_cast<int>(sent_packets_);
}

// A datagram too long for the interface is left to the kernel to refuse; what is caught here would be read from
// memory that is not there, or could not be a UDP datagram at all.
bool Transmitter::deliverable(const dlcp_packet& packet) const {
    const std::uint32_t address_bytes = family_ == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    return packet.address != nullptr && packet.address->length == address_bytes &&
           packet.head_bytes <= DLCP_HEAD_CAPACITY &&
           packet.tail_bytes <= DLCP_HEAD_CAPACITY - packet.head_bytes && packet.body_bytes <= UINT16_MAX &&
           (packet.body != nullptr || packet.body_bytes == 0);
}

bool Transmitter::extends(const Message& message, const dlcp_packet& packet, std::uint32_t bytes) const {
    return use_gso_ && !message.closed && (packet.flags & DLCP_PACKET_ALONE) == 0 &&
           bytes <= message.segment_bytes && packet.tos == message.tos &&
           message.total_bytes + bytes <= super_packet_bytes_max && same_address(packet.address, message.address);
}

void Transmitter::append(const dlcp_packet& packet, std::uint32_t bytes) {
    const std::uint32_t socket = sockets_.index_of(packet.path, (packet.flags & DLCP_PACKET_ANSWERED) != 0);
    if (socket != socket_ || packets_used_ == burst_packets_max) flush();
    socket_ = socket;

    if (messages_used_ == 0 || !extends(messages_[messages_used_ - 1], packet, bytes))
        start_message(packet, bytes);
    add_iovec(packet.head, packet.head_bytes);
    add_iovec(packet.body, packet.body_bytes);
    add_iovec(packet.head + packet.head_bytes, packet.tail_bytes);
    packets_[packets_used_++] = &packet;
    Message& message = messages_[messages_used_ - 1];
    ++message.packets;
    message.total_bytes += bytes;
    message.closed = bytes < message.segment_bytes || message.packets == segments_max ||
                     (packet.flags & DLCP_PACKET_ALONE) != 0;
}

void Transmitter::add_iovec(const std::uint8_t* start, std::uint32_t bytes) {
    if (bytes == 0) return;
    if (iovecs_used_ > messages_[messages_used_ - 1].first_iovec) {
        iovec& last = iovecs_[iovecs_used_ - 1];
        if (static_cast<std::uint8_t*>(last.iov_base) + last.iov_len == start) {
            last.iov_len += bytes;
            return;
        }
    }
    iovecs_[iovecs_used_++] = {const_cast<std::uint8_t*>(start), bytes};
}

void Transmitter::start_message(const dlcp_packet& packet, std::uint32_t bytes) {
    messages_[messages_used_++] = {.address = packet.address,
                                   .first_packet = packets_used_,
                                   .packets = 0,
                                   .first_iovec = iovecs_used_,
                                   .segment_bytes = bytes,
                                   .total_bytes = 0,
                                   .tos = packet.tos,
                                   .closed = false};
}

void Transmitter::fill_header(mmsghdr& header, Control& control, const Message& message, iovec* iovecs,
                              std::uint32_t count, bool segmented) const {
    header = {};
    header.msg_hdr.msg_name = const_cast<std::uint8_t*>(message.address->bytes);
    header.msg_hdr.msg_namelen = message.address->length;
    header.msg_hdr.msg_iov = iovecs;
    header.msg_hdr.msg_iovlen = count;
    std::size_t used = 0;
    if (message.tos != socket_default_tos) {
        used += family_ == AF_INET6
                    ? put_control(&control.bytes[used], IPPROTO_IPV6, IPV6_TCLASS, int{message.tos})
                    : put_control(&control.bytes[used], IPPROTO_IP, IP_TOS, int{message.tos});
    }
    if (segmented) {
        used += put_control(&control.bytes[used], IPPROTO_UDP, UDP_SEGMENT,
                            static_cast<std::uint16_t>(message.segment_bytes));
    }
    header.msg_hdr.msg_control = used > 0 ? control.bytes.data() : nullptr;
    header.msg_hdr.msg_controllen = used;
}

void Transmitter::flush() {
    if (messages_used_ == 0) return;
    for (std::uint32_t i = 0; i < messages_used_; ++i) {
        const Message& message = messages_[i];
        const std::uint32_t end = i + 1 < messages_used_ ? messages_[i + 1].first_iovec : iovecs_used_;
        fill_header(headers_[i], controls_[i], message, &iovecs_[message.first_iovec], end - message.first_iovec,
                    message.packets > 1);
    }
    sent_packets_ += send(headers_.data(), messages_used_, messages_.data());
    messages_used_ = packets_used_ = iovecs_used_ = 0;
}

std::uint32_t Transmitter::send(mmsghdr* headers, std::uint32_t count, const Message* messages) {
    const Socket& socket = sockets_[socket_];
    std::uint32_t sent_packets = 0;
    std::uint32_t done = 0;
    bool retried = false;  // this message has failed once before
    while (done < count) {
        const int sent = sendmmsg(socket.descriptor(), headers + done, count - done, MSG_DONTWAIT);
        ++counters_.tx_calls;
        if (sent > 0) {
            for (int i = 0; i < sent; ++i, ++done) {
                sent_packets += messages != nullptr ? messages[done].packets : 1;
                counters_.tx_bytes += headers[done].msg_len;
            }
            retried = false;
        }
        if (done == count) break;
        const int number = sent > 0 ? 0 : errno;
        // When sendmmsg stops early it leaves the reason on the socket as well (net/socket.c), where it would fail
        // the next message or receive, which has nothing to do with it.
        socket.take_error();
        if (sent > 0 || number == EINTR) continue;

        const std::uint32_t packets = messages != nullptr ? messages[done].packets : 1;
        if (out_of_room(number)) {
            if (wait_for_room(socket.descriptor())) continue;
            // The bound: what is left of this batch is lost locally, and the protocol treats it as lost.
            for (; done < count; ++done) drop(messages != nullptr ? messages[done].packets : 1);
            break;
        }
        if (packets > 1 && refuses_segmentation(number)) {
            sent_packets += send_one_by_one(messages[done]);
        } else if (!retried) {
            retried = true;  // it may have been an ICMP error about an earlier packet
            continue;
        } else {
            drop(packets);
        }
        ++done;
        retried = false;
    }
    if (messages != nullptr) counters_.tx_packets += sent_packets;
    return sent_packets;
}

std::uint32_t Transmitter::send_one_by_one(const Message& message) {
    for (std::uint32_t i = 0; i < message.packets; ++i) {
        const dlcp_packet& packet = *packets_[message.first_packet + i];
        single_iovecs_[i] = {{{packet.head, packet.head_bytes},
                              {const_cast<std::uint8_t*>(packet.body), packet.body_bytes},
                              {packet.head + packet.head_bytes, packet.tail_bytes}}};
        fill_header(single_headers_[i], single_controls_[i], message, single_iovecs_[i].data(), 3, false);
    }
    const std::uint32_t sent = send(single_headers_.data(), message.packets, nullptr);
    // The same packets pass without segmentation: so that was what the kernel refused, and will refuse again.
    if (sent > 0) use_gso_ = false;
    return sent;
}

// POLLOUT comes only when half the send buffer is free, which takes long on a slow link; room for one more comes
// much earlier. So sleep in short steps and try again after each.
bool Transmitter::wait_for_room(int descriptor) {
    if (wait_left_ns_ <= 0) return false;
    const std::int64_t start_ns = monotonic_ns();
    const timespec step = {0, send_wait_ns_step};
    pollfd writable = {descriptor, POLLOUT, 0};
    ppoll(&writable, 1, &step, nullptr);
    // At least a tenth of a step, so that an error that does not wait (ENOBUFS) is retried a bounded number of times.
    wait_left_ns_ -= std::max(monotonic_ns() - start_ns, send_wait_ns_step / 10);
    return true;
}

}  // namespace dlcp::udp

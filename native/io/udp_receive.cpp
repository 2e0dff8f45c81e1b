// Reads sockets in turn and unpacks what the kernel merged.
#include "io/udp_receive.hpp"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>

#include <algorithm>
#include <bit>

#include "io/clock.hpp"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace dlcp::udp {

namespace {

// Packets wait in a socket for milliseconds, or while their process is stopped; not longer than this.
constexpr std::int64_t stamp_age_ns_max = 10'000'000'000;

constexpr std::uint8_t ecn_mask = 3;
constexpr std::uint8_t ecn_ce = 3;  // congestion experienced, RFC 3168 section 5

}  // namespace

Receiver::Receiver(Sockets& sockets, int family, bool use_gro, dlcp_io_counters& counters)
    : sockets_(sockets),
      counters_(counters),
      address_bytes_(family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)),
      buffer_bytes_(use_gro ? gro_buffer_bytes : DLCP_HEAD_CAPACITY),
      memory_(buffers_max, buffer_bytes_),
      message_bytes_(buffer_bytes_) {
    for (std::uint32_t i = buffers_max; i-- > 0;) {
        buffers_[i].data = memory_.slot(i);
        release(i);
    }
}

int Receiver::receive(dlcp_packet* packets, int count) {
    if (count <= 0) return 0;
    int received = unpack(packets, count);
    if (received == count) return received;
    // Ask which sockets are readable only when it is not known, and again after a read that left packets behind: so
    // idle sockets cost nothing and a busy one does not keep the others waiting. One socket is simply read. The
    // bound on reads keeps a flood of datagrams that are all discarded from holding the caller.
    bool ask = readable_ == 0;
    for (int reads = 0; reads < reads_max && received < count && free_count_ > 0; ++reads) {
        if (readable_ == 0) {
            if (!ask) break;
            ask = false;
            readable_ = sockets_.readable();
            if (readable_ == 0) break;
        }
        const int socket = std::countr_zero(readable_);
        readable_ &= readable_ - 1;
        if (read_from(static_cast<std::uint32_t>(socket))) ask = true;
        received += unpack(packets + received, count - received);
    }
    return received;
}

bool Receiver::read_from(std::uint32_t socket) {
    const std::uint32_t fitting =
        std::clamp(read_bytes_target / std::max(message_bytes_, 1u), read_messages_min, buffers_max);
    const std::uint32_t wanted = std::min(fitting, free_count_);
    for (std::uint32_t i = 0; i < wanted; ++i) {
        Buffer& buffer = buffers_[free_[free_count_ - 1 - i]];
        iovecs_[i] = {buffer.data, buffer_bytes_};
        headers_[i].msg_hdr = {};
        headers_[i].msg_hdr.msg_name = buffer.source.bytes;
        headers_[i].msg_hdr.msg_namelen = sizeof buffer.source.bytes;
        headers_[i].msg_hdr.msg_iov = &iovecs_[i];
        headers_[i].msg_hdr.msg_iovlen = 1;
        headers_[i].msg_hdr.msg_control = buffer.control.data();
        headers_[i].msg_hdr.msg_controllen = buffer.control.size();
    }
    int read = -1;
    // A pending error (ICMP) is reported once instead of a packet; the packets are behind it.
    for (int attempt = 0; attempt < 2; ++attempt) {
        read = recvmmsg(sockets_[socket].descriptor(), headers_.data(), wanted, MSG_DONTWAIT, nullptr);
        ++counters_.rx_calls;
        if (read >= 0 || errno == EAGAIN || errno == EWOULDBLOCK) break;
    }
    if (read <= 0) return false;
    // Take all filled buffers off the stack before looking at any: a discarded one goes back on it.
    std::array<std::uint8_t, buffers_max> filled;
    for (int i = 0; i < read; ++i) filled[i] = free_[--free_count_];
    const ClockPair now = read_clock_pair();
    std::uint64_t bytes = 0;
    for (int i = 0; i < read; ++i) {
        arrive(filled[i], headers_[i], now);
        bytes += headers_[i].msg_len;
    }
    message_bytes_ = (message_bytes_ * 7 + static_cast<std::uint32_t>(bytes / static_cast<unsigned>(read))) / 8;
    return static_cast<std::uint32_t>(read) == wanted;
}

void Receiver::arrive(std::uint32_t index, const mmsghdr& header, const ClockPair& now) {
    Buffer& buffer = buffers_[index];
    buffer.data_bytes = header.msg_len;
    buffer.segment_bytes = header.msg_len;
    buffer.offset = 0;
    buffer.lent = 0;
    buffer.unpacked = false;
    buffer.tos = 0;
    buffer.arrival_ns = 0;
    buffer.source.length = static_cast<std::uint16_t>(header.msg_hdr.msg_namelen);
    msghdr& message = const_cast<msghdr&>(header.msg_hdr);  // CMSG_NXTHDR takes no const
    for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
         control = CMSG_NXTHDR(&message, control)) {
        if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_TOS) {
            buffer.tos = *CMSG_DATA(control);  // one byte
        } else if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_TCLASS) {
            int tclass;
            memcpy(&tclass, CMSG_DATA(control), sizeof tclass);
            buffer.tos = static_cast<std::uint8_t>(tclass);
        } else if (control->cmsg_level == IPPROTO_UDP && control->cmsg_type == UDP_GRO) {
            int segment_bytes;
            memcpy(&segment_bytes, CMSG_DATA(control), sizeof segment_bytes);
            if (segment_bytes > 0) buffer.segment_bytes = static_cast<std::uint32_t>(segment_bytes);
        } else if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_TIMESTAMPNS) {
            timespec stamp;
            memcpy(&stamp, CMSG_DATA(control), sizeof stamp);
            // An age outside the range means that the wall clock was set meanwhile: then "unknown" is the truth.
            const std::int64_t age_ns = now.wall_ns - to_ns(stamp);
            if (age_ns >= 0 && age_ns <= stamp_age_ns_max) buffer.arrival_ns = now.monotonic_ns - age_ns;
        }
    }
    const bool truncated = (header.msg_hdr.msg_flags & MSG_TRUNC) != 0;  // never a super-packet: those fit
    if (truncated) ++counters_.rx_truncated_packets;
    if (truncated || buffer.source.length != address_bytes_ || buffer.data_bytes == 0) {
        release(index);
        return;
    }
    arrived_[(arrived_first_ + arrived_count_++) % buffers_max] = static_cast<std::uint8_t>(index);
}

int Receiver::unpack(dlcp_packet* packets, int count) {
    int filled = 0;
    while (arrived_count_ > 0 && filled < count) {
        const std::uint32_t index = arrived_[arrived_first_];
        Buffer& buffer = buffers_[index];
        std::uint32_t handed_out = 0;
        while (filled < count && buffer.offset < buffer.data_bytes) {
            std::uint8_t* const start = buffer.data + buffer.offset;
            const std::uint32_t bytes = std::min(buffer.segment_bytes, buffer.data_bytes - buffer.offset);
            buffer.offset += bytes;
            if (bytes > DLCP_HEAD_CAPACITY) {  // longer than anything the engine makes room for
                ++counters_.rx_truncated_packets;
                continue;
            }
            packets[filled++] = {.head = start,
                                 .body = nullptr,
                                 .address = &buffer.source,
                                 .head_bytes = bytes,
                                 .body_bytes = 0,
                                 .tail_bytes = 0,
                                 .path = 0,
                                 .tos = buffer.tos,
                                 .flags = 0,
                                 .arrival_ns = buffer.arrival_ns,
                                 .cookie = index};
            ++handed_out;
            counters_.rx_bytes += bytes;
        }
        buffer.lent += handed_out;
        counters_.rx_packets += handed_out;
        if ((buffer.tos & ecn_mask) == ecn_ce) counters_.ce_packets += handed_out;
        if (buffer.offset == buffer.data_bytes) {
            arrived_first_ = (arrived_first_ + 1) % buffers_max;
            --arrived_count_;
            buffer.unpacked = buffer.lent > 0;  // else nobody will give it back
            if (buffer.lent == 0) release(index);
        }
    }
    return filled;
}

void Receiver::done(const dlcp_packet* packets, int count) {
    for (int i = 0; i < count;) {
        const std::uint64_t cookie = packets[i].cookie;
        std::uint32_t returned = 0;
        for (; i < count && packets[i].cookie == cookie; ++i) ++returned;
        if (cookie >= buffers_max) continue;  // not from receive()
        Buffer& buffer = buffers_[cookie];
        if (returned > buffer.lent) continue;  // given back twice
        buffer.lent -= returned;
        if (buffer.lent == 0 && buffer.unpacked) {
            buffer.unpacked = false;
            release(static_cast<std::uint32_t>(cookie));
        }
    }
}

}  // namespace dlcp::udp

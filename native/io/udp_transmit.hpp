// Sending: runs of packets become UDP_SEGMENT super-packets, several of them one sendmmsg.
//
// The engine lays a run's packets end to end where their payload fits into heads, so most messages are one iovec. What
// does not, the kernel gathers from where it lies. Measured on loopback at 1472 bytes, a packet costs the sender 117 ns
// in long runs and 1280 ns alone (bench/native/udp_limit).
//
//   packets   A A A A a B B …      a: the shorter last one of the run; B: another address, path, TOS or length
//   messages  [A A A A a] [B B …]  each: one iovec list, one TOS, one segment size
//   iovecs    head, body, tag, head, body, tag, …; neighbours in memory are one
//
// Everything accepted by put() is either taken by the kernel or counted as lost locally before put() returns; it
// waits for room in the send buffer no longer than `send_wait_ns_max`.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "engine/packet.h"
#include "io/io_table.h"
#include "io/udp_memory.hpp"
#include "io/udp_sockets.hpp"

namespace dlcp::udp {

class Transmitter {
public:
    static constexpr int burst_packets_max = 256;

    // `sockets` and `counters` must outlive this.
    Transmitter(Sockets& sockets, int family, bool use_gso, dlcp_io_counters& counters);

    // The `tx_get` and `tx_put` of io_table.h.
    int get(dlcp_packet* packets, int count);
    int put(const dlcp_packet* packets, int count);

    // False from the start, or from the moment the kernel refused a super-packet whose packets it took one by one.
    bool uses_gso() const { return use_gso_; }

private:
    // The kernel's UDP_MAX_SEGMENTS: 64 at first, 128 in newer kernels.
    static constexpr std::uint32_t segments_max = 64;
    // 65,507 is the largest IPv4 payload; the rest is left for IPv6 extension headers and encapsulation.
    static constexpr std::uint32_t super_packet_bytes_max = 65'000;
    static constexpr std::int64_t send_wait_ns_max = 1'000'000;
    static constexpr std::int64_t send_wait_ns_step = 100'000;
    static constexpr std::size_t control_bytes = CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint16_t));

    // One datagram or super-packet under construction.
    struct Message {
        const dlcp_address* address;
        std::uint32_t first_packet;  // index into packets_
        std::uint32_t packets;
        std::uint32_t first_iovec;
        std::uint32_t segment_bytes;  // length of all packets but the last
        std::uint32_t total_bytes;
        std::uint8_t tos;
        bool closed;  // nothing more fits: its last packet was shorter, or it is full
    };
    struct alignas(8) Control {
        std::array<std::uint8_t, control_bytes> bytes;
    };

    bool deliverable(const dlcp_packet& packet) const;
    bool extends(const Message& message, const dlcp_packet& packet, std::uint32_t bytes) const;
    void append(const dlcp_packet& packet, std::uint32_t bytes);
    void start_message(const dlcp_packet& packet, std::uint32_t bytes);
    // To the last message.
    void add_iovec(const std::uint8_t* start, std::uint32_t bytes);
    void flush();
    void fill_header(mmsghdr& header, Control& control, const Message& message, iovec* iovecs, std::uint32_t count,
                     bool segmented) const;
    // Sends all `count` headers on the current socket. `messages` runs parallel to them, or is nullptr when each
    // header is a single packet. Returns how many packets the kernel took.
    std::uint32_t send(mmsghdr* headers, std::uint32_t count, const Message* messages);
    std::uint32_t send_one_by_one(const Message& message);
    bool wait_for_room(int descriptor);
    void drop(std::uint64_t packets) { counters_.tx_dropped_packets += packets; }

    Sockets& sockets_;
    int family_;
    bool use_gso_;
    dlcp_io_counters& counters_;

    PacketMemory memory_{burst_packets_max, DLCP_HEAD_CAPACITY};
    std::uint32_t lent_ = 0;       // slots got and not put back
    std::uint32_t next_slot_ = 0;  // of the ring of slots

    // The batch under construction: consecutive messages for one socket.
    std::uint32_t socket_ = 0;
    std::uint32_t messages_used_ = 0;
    std::uint32_t packets_used_ = 0;
    std::uint32_t iovecs_used_ = 0;
    std::uint32_t sent_packets_ = 0;  // of this put()
    std::int64_t wait_left_ns_ = 0;   // of this put()
    std::array<Message, burst_packets_max> messages_;
    std::array<const dlcp_packet*, burst_packets_max> packets_;
    std::array<iovec, burst_packets_max * 3> iovecs_;
    std::array<mmsghdr, burst_packets_max> headers_;
    std::array<Control, burst_packets_max> controls_;
    std::array<mmsghdr, segments_max> single_headers_;
    std::array<Control, segments_max> single_controls_;
    std::array<std::array<iovec, 3>, segments_max> single_iovecs_;
};

}  // namespace dlcp::udp

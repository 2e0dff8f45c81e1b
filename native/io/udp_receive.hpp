// Receiving: recvmmsg into large buffers, and cutting what the kernel merged (UDP_GRO) back into packets.
//
// A buffer holds one datagram or one super-packet; the packets handed out point into it, so nothing is copied. It
// is free again when all its packets have come back through done(). Free buffers are a stack: the one given back
// last, still in the cache, is filled first.
//
//   free ── read_from ──> arrived (queue; the first may be partly handed out) ── unpack ──> lent ── done ──> free
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "engine/packet.h"
#include "io/clock.hpp"
#include "io/io_table.h"
#include "io/udp_memory.hpp"
#include "io/udp_sockets.hpp"

namespace dlcp::udp {

class Receiver {
public:
    // `sockets` and `counters` must outlive this.
    Receiver(Sockets& sockets, int family, bool use_gro, dlcp_io_counters& counters);

    // The `rx` and `rx_done` of io_table.h.
    int receive(dlcp_packet* packets, int count);
    void done(const dlcp_packet* packets, int count);

    // Packets have been read from the kernel, or a socket is known to be readable: no reason to sleep.
    bool has_work() const { return arrived_count_ > 0 || readable_ != 0; }
    // What Poller::wait has found; saves the next receive() from asking again.
    void note_readable(std::uint64_t sockets) { readable_ |= sockets; }

private:
    static constexpr std::uint32_t buffers_max = 64;
    static constexpr std::uint32_t gro_buffer_bytes = 65'536;
    // One recvmmsg is sized to read about this much, so that buffers stay in the L2 cache (2 MB). Millions of packets
    // per CPU-second, 1472 bytes, 8 MB in flight (udp_limit --only driver_receives_window --window-bytes 8000000):
    // 64 KB 10.9, 256 KB 11.1, 1 MB 9.3, 4 MB 8.1; read by the caller as well (--touch): 7.0, 7.0, 6.1, 5.3.
    static constexpr std::uint32_t read_bytes_target = 256 * 1024;
    static constexpr std::uint32_t read_messages_min = 4;
    static constexpr int reads_max = 64;  // recvmmsg calls in one receive()

    struct Buffer {
        dlcp_address source = {};
        alignas(8) std::array<std::uint8_t, 128> control;  // TOS, segment size, arrival time; 72 bytes used
        std::uint8_t* data = nullptr;
        std::uint32_t data_bytes = 0;
        std::uint32_t segment_bytes = 0;  // all packets but the last have this length
        std::uint32_t offset = 0;         // handed out so far
        std::uint32_t lent = 0;           // packets handed out and not done
        std::uint8_t tos = 0;
        std::int64_t arrival_ns = 0;  // of the first packet merged into it; 0: unknown
        bool unpacked = false;        // every packet has been handed out
    };

    bool read_from(std::uint32_t socket);  // true: every buffer was filled, so more may be there
    void arrive(std::uint32_t buffer, const mmsghdr& header, const ClockPair& now);
    int unpack(dlcp_packet* packets, int count);
    void release(std::uint32_t buffer) { free_[free_count_++] = static_cast<std::uint8_t>(buffer); }

    Sockets& sockets_;
    dlcp_io_counters& counters_;
    std::uint32_t address_bytes_;
    std::uint32_t buffer_bytes_;
    PacketMemory memory_;

    std::uint64_t readable_ = 0;   // sockets that may hold packets, one bit each
    std::uint32_t message_bytes_;  // running mean length of what recvmmsg returned
    std::uint32_t free_count_ = 0;
    std::uint32_t arrived_first_ = 0;
    std::uint32_t arrived_count_ = 0;
    std::array<std::uint8_t, buffers_max> free_;     // stack
    std::array<std::uint8_t, buffers_max> arrived_;  // ring
    std::array<Buffer, buffers_max> buffers_;
    std::array<iovec, buffers_max> iovecs_;
    std::array<mmsghdr, buffers_max> headers_;
};

}  // namespace dlcp::udp

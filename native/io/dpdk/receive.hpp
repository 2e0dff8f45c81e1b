// Receiving: bursts from every queue of every port in turn; datagrams are handed out where they lie.
//
//   device ── rte_eth_rx_burst ──> frame ── Interface::read ──> datagram: lent ── done ──> pool
//                                                          └──> other: Interface::handle_frame ──> pool
//
// A datagram's source, as a dlcp_address, is written over the headers in front of it, which nobody reads any more: it
// lives as long as the buffer, and there is no table that could be full.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/packet.h"
#include "engine/units.hpp"
#include "io/dpdk/address_pairs.hpp"
#include "io/io_table.h"

namespace dlcp::dpdk {

class Receiver {
public:
    // All must outlive this.
    Receiver(std::span<Uplink> uplinks, dlcp_io_counters& counters);
    ~Receiver();
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    // The `rx` and `rx_done` of io_table.h.
    int receive(Time now, dlcp_packet* packets, int count);
    void done(const dlcp_packet* packets, int count);

    // Looks for packets and keeps what it finds for the next receive(). True: some are kept.
    bool poll(Time now);

    // Frames that were handed to an interface since this was last asked: it may have something to send.
    bool take_handled() {
        const bool handled = handled_;
        handled_ = false;
        return handled;
    }

private:
    static constexpr std::uint16_t burst_frames_max = 64;
    static constexpr int full_burst_frames =
        32;  // some devices give no more at once: there may be more behind them
    static constexpr int kept_packets_max = 32;
    // Of frames that are no datagrams in one receive(): what they cost is bounded.
    static constexpr int other_frames_max = 256;

    struct Queue {
        std::uint16_t uplink = 0, queue = 0;
    };
    // A source seen lately; the slot follows from the address.
    struct Source {
        ipstack::UdpAddress udp;
        std::uint16_t uplink = UINT16_MAX;
        std::uint64_t heard_round = 0;  // the receive() that told the interface
        dlcp_address address = {};
    };

    int collect(Time now, dlcp_packet* packets, int count);
    int read_burst(Time now, const Queue& queue, dlcp_packet* packets, int room, int& frames);
    bool accept(Time now, std::uint16_t uplink, rte_mbuf* frame, dlcp_packet& packet);
    const dlcp_address& source_of(Time now, std::uint16_t uplink, const ipstack::Datagram& datagram);

    std::span<Uplink> uplinks_;
    dlcp_io_counters& counters_;
    std::vector<Queue> queues_;
    std::size_t first_queue_ = 0;  // of the next round
    std::uint64_t round_ = 0;
    bool handled_ = false;
    std::array<dlcp_packet, kept_packets_max> kept_;
    int kept_first_ = 0, kept_used_ = 0;
    std::array<Source, 64> sources_;
};

}  // namespace dlcp::dpdk

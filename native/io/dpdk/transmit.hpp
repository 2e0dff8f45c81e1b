// Sending: the engine writes a datagram's head into an mbuf; headers go before it, payload behind it or beside it.
//
//   mbuf   | room | Ethernet, IP, UDP | head | body (copied) | tail |
//                                     ^ where head lies in every frame: 64-byte aligned, headers end here
//
// A body is copied behind the head, the tail moved behind the body. Or, with a device that has read a packet when
// tx_burst returns, frame and body and tail become segments of one packet, and nothing is copied (external_buffer.hpp).
//
// Frames are collected per port and queue and leave in bursts. What a device does not take within send_wait_ns_max is
// lost locally. Packets whose next hop is not known yet wait (pending.hpp).
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/packet.h"
#include "engine/units.hpp"
#include "io/dpdk/address_pairs.hpp"
#include "io/dpdk/external_buffer.hpp"
#include "io/dpdk/options.hpp"
#include "io/dpdk/pending.hpp"
#include "io/driver_events.hpp"
#include "io/io_table.h"

namespace dlcp::dpdk {

struct TransmitConfig {
    std::uint16_t udp_port = 0;
    std::uint16_t paths = 1;
    // Of all ports, since any port's buffers leave through any port.
    std::uint32_t max_datagram_bytes = 0;
    PayloadMode payload = PayloadMode::automatic;
};

// What sending has done, beyond dlcp_io_counters.
struct TransmitStatistics {
    std::uint64_t copied_packets = 0;    // their payload was copied
    std::uint64_t gathered_packets = 0;  // their payload was linked
    std::uint64_t pending_packets = 0;   // had to wait for their next hop's Ethernet address
    std::uint64_t pending_dropped_packets = 0;
    std::uint64_t no_buffer_calls = 0;   // tx_get that could not be given what it asked for
    std::uint64_t full_queue_waits = 0;  // bursts that a device did not take at once
};

class Transmitter {
public:
    // The least cycles per packet of 1472 bytes on memif, received and sent (bench/native/driver_rate --burst):
    //   8     16    32    64    128   256
    //   396   366   359   361   410   370
    //   477   422   390   364   362   436
    static constexpr std::uint32_t burst_packets_max = 64;

    // All must outlive this.
    Transmitter(std::span<Uplink> uplinks, AddressPairs& pairs, const TransmitConfig& config,
                dlcp_io_counters& counters, DriverEvents& events);
    ~Transmitter();
    Transmitter(const Transmitter&) = delete;
    Transmitter& operator=(const Transmitter&) = delete;

    // The `tx_get` and `tx_put` of io_table.h.
    int get(dlcp_packet* packets, int count);
    int put(Time now, const dlcp_packet* packets, int count);

    // Sends what an interface has to say itself: ARP, neighbour discovery, echoes.
    void send_own_frames(Uplink& uplink);
    // Finds out whether payload can be linked to the frames of a port that has a link; it may take another try, which
    // is made no sooner than the link is looked at again.
    void probe(Time now, Uplink& uplink);
    // Sends what waited and can go; drops what waited too long.
    void handle_pending(Time now);
    const Pending& pending() const { return pending_; }

    const TransmitStatistics& statistics() const { return statistics_; }

private:
    // A device may be full for as long as its reader is not scheduled. More would stop the engine, which resends anyway.
    static constexpr std::int64_t send_wait_ns_max = 1'000'000;
    // Bodies from here on are linked. Below the first, a copy costs less than two segments do. Unless asked to, nothing
    // below the second: cycles of the sender per packet, payload from 128 MB of memory (bench/native/driver_rate),
    //   memif 1472 bytes, copied 820-930, linked 840-870; 8972 bytes, 7600-7800 and 4600-5800
    //   af_packet 1472 bytes, 3300-3700 and 3900-4000
    static constexpr std::uint32_t gather_bytes_min = 512;
    static constexpr std::uint32_t automatic_gather_bytes_min = 4096;

    // Frames on their way to one queue of one port.
    struct Batch {
        std::uint16_t uplink = 0, queue = 0;
        std::uint16_t frames_used = 0;
        std::array<rte_mbuf*, burst_packets_max> frames;
    };
    // How packets of one (address, path) go. Found once per run.
    struct Route {
        Uplink* uplink = nullptr;
        const ipstack::Destination* destination = nullptr;
        Batch* batch = nullptr;
        ipstack::Marking marking;
        bool sums = false;  // the payload's checksum is needed
    };

    bool refill(std::uint32_t wanted);
    void give_back(rte_mbuf* frame);
    bool deliverable(const dlcp_packet& packet, const rte_mbuf* frame) const;
    bool choose_route(Time now, const dlcp_packet& packet, Route& route);
    // Copied or linked; `sum` becomes the payload's, if it is needed. False: there was no segment to link it with.
    bool append_payload(const Route& route, const dlcp_packet& packet, rte_mbuf* frame, std::uint64_t& sum);
    void copy_payload(const dlcp_packet& packet, bool sums, rte_mbuf* frame, std::uint64_t& sum);
    bool link_payload(const dlcp_packet& packet, bool sums, rte_mbuf* frame, std::uint64_t& sum);
    void finish(const ipstack::Destination& destination, const ipstack::Marking& marking, Uplink& uplink,
                std::uint64_t payload_sum, rte_mbuf* frame) const;
    void add(Batch& batch, rte_mbuf* frame);
    void wait_for_neighbour(Time now, const Route& route, rte_mbuf* frame, std::uint64_t sum);
    void flush(Batch& batch);
    void flush_all();
    // Returns how many of the frames the device took; those that it did not are the caller's still.
    std::uint16_t burst(const Uplink& uplink, std::uint16_t queue, rte_mbuf** frames, std::uint16_t count);
    Batch& batch_of(std::uint16_t uplink, std::uint16_t queue) { return batches_[first_batch_[uplink] + queue]; }

    std::span<Uplink> uplinks_;
    AddressPairs& pairs_;
    TransmitConfig config_;
    dlcp_io_counters& counters_;
    DriverEvents& events_;
    TransmitStatistics statistics_;
    const std::uint32_t gather_bytes_min_;
    ExternalBuffers segments_;
    Pending pending_;

    std::array<rte_mbuf*, burst_packets_max> spare_;  // stack: given back unsent, the warmest on top
    std::uint32_t spare_used_ = 0;
    std::uint32_t lent_ = 0;
    bool told_of_no_buffers_ = false;
    std::uint64_t put_number_ = 0;
    std::int64_t wait_left_ns_ = 0;   // of this put()
    std::uint32_t sent_packets_ = 0;  // of this put()
    std::vector<Batch> batches_;
    std::vector<std::uint32_t> first_batch_;  // of each uplink
};

}  // namespace dlcp::dpdk

// Sending: headers and payload are written into the chunk that the engine wrote its header to, and the kernel is
// called once per burst.
//
//   chunk  [ room │ Ethernet IP UDP │ head │ body │ tag │ … ]     the engine writes head and tag; body is copied behind
//                 frame begins here    lent from here             head from the tensor, the tag behind it
//
// The body is copied, for a card may read a frame long after tx_put has returned.
#pragma once

#include <cstdint>
#include <span>

#include "engine/units.hpp"
#include "io/io_table.h"
#include "io/xdp/queue.hpp"
#include "io/xdp/waiting.hpp"
#include "ipstack/interface.hpp"

namespace dlcp::xdp {

class Transmitter {
public:
    static constexpr int burst_packets_max = 256;
    // `queue`, `interface` and `counters` must outlive this.
    Transmitter(Queue& queue, ipstack::Interface& interface, ipstack::Checksums checksums, std::uint16_t paths,
                std::uint32_t max_datagram_bytes, dlcp_io_counters& counters);

    // The `tx_get` and `tx_put` of io_table.h.
    int get(Time now, dlcp_packet* packets, int count);
    int put(Time now, const dlcp_packet* packets, int count);

    // Sends what the interface has to say, what waited for a neighbour and what the kernel did not take before.
    void serve(Time now);
    // Something waits for the kernel, which does not say when it is ready: serve() again soon. Either it has not taken
    // all frames yet, or a buffer is wanted that it has not given back.
    bool waits_for_kernel() const {
        return queue_.unsent() || starved_since_ns_ != 0 ||
               (!waiting_.empty() && interface_.resolutions() != resolutions_seen_);
    }
    // The kernel or the card has frames of ours that are not sent yet.
    bool sending() const { return queue_.under_way() > 0; }
    // Without a link nothing is sent: what would wait in the ring is of no use later.
    void set_link(bool up) { link_up_ = up; }
    // Buffers have been lacking since then; 0: they are not.
    std::int64_t starved_since_ns() const { return starved_since_ns_; }

private:
    // Before the head: the headers, in a cache line or two of their own.
    static constexpr std::uint32_t headroom_bytes = 128;
    static_assert(ipstack::headers_bytes_max <= headroom_bytes);
    // Kept from the engine, so that a neighbour can be asked for even when it has all the others.
    static constexpr std::uint32_t own_chunks = 8;

    bool deliverable(const dlcp_packet& packet) const;
    // nullptr: cannot be reached.
    const ipstack::Destination* find(Time now, const dlcp_address& address);
    void send(const ipstack::Destination& destination, const ipstack::Marking& marking, std::uint64_t chunk,
              std::uint32_t payload_bytes);
    void send_waiting(Time now);
    void send_own_frames();

    Queue& queue_;
    ipstack::Interface& interface_;
    ipstack::Checksums checksums_;
    std::uint16_t paths_;
    std::uint32_t max_datagram_bytes_;
    dlcp_io_counters& counters_;
    bool link_up_ = true;
    std::int64_t starved_since_ns_ = 0;
    std::uint64_t resolutions_seen_ = 0;
    Waiting waiting_;

    // The destination of the packet before: neighbours in a burst mostly go to one.
    dlcp_address last_address_ = {};
    const ipstack::Destination* last_ = nullptr;
};

}  // namespace dlcp::xdp

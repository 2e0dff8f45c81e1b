// Receiving: frames of all queues in turn; datagrams are lent to the engine where they lie, everything else goes to the
// interface, which answers it.
//
// The kernel leaves the first XDP_PACKET_HEADROOM bytes of a chunk unused: the source's address is put there, so that
// it lasts exactly as long as the packet is lent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/units.hpp"
#include "io/io_table.h"
#include "io/xdp/queue.hpp"
#include "ipstack/interface.hpp"

namespace dlcp::xdp {

class Receiver {
public:
    // All must outlive this.
    Receiver(std::span<const std::unique_ptr<Queue>> queues, ipstack::Interface& interface,
             dlcp_io_counters& counters);

    // The `rx` and `rx_done` of io_table.h.
    int receive(Time now, dlcp_packet* packets, int count);
    void done(const dlcp_packet* packets, int count);

    bool has_work() const;

private:
    // Frames of others that one receive() looks at per packet that it was asked for: a flood of them does not hold the
    // caller.
    static constexpr int frames_per_packet = 4;
    // A cookie is a queue and a chunk of it.
    static constexpr unsigned queue_shift = 48;

    int take(std::size_t index, Time now, dlcp_packet* packets, int count);
    bool read(Queue& queue, const xdp_desc& frame, Time now, dlcp_packet& out);

    std::span<const std::unique_ptr<Queue>> queues_;
    ipstack::Interface& interface_;
    dlcp_io_counters& counters_;
    std::size_t next_queue_ = 0;  // looked at first, so that none has to wait for another
    ipstack::UdpAddress last_source_;
    dlcp_address last_address_ = {};
};

}  // namespace dlcp::xdp

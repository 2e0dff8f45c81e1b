// One bound UDP socket with the options the driver relies on, and what the kernel granted.
//
// Invariant: an open Socket never fragments (DF is set), reports TOS and arrival time, and never shares its port:
// SO_REUSEADDR is not set, because with UDP it lets two programs bind one port and splits their packets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/packet.h"
#include "io/descriptor.hpp"
#include "io/error_text.hpp"
#include "io/udp_address.hpp"

namespace dlcp::udp {

struct SocketOptions {
    std::string device;              // SO_BINDTODEVICE; empty: any interface
    std::uint32_t buffer_bytes = 0;  // asked for receiving and for sending
    bool want_gro = false;           // let the kernel hand over merged packets
};

class Socket {
public:
    // Binds to `address` (port 0: a free one). -EPERM if only the device was refused (before Linux 5.7 that took
    // a privilege); other errors are final.
    int open(const dlcp_address& address, const SocketOptions& options, ErrorText error);

    int descriptor() const { return descriptor_.number(); }
    dlcp_address local_address() const;
    // What the kernel granted, in its own accounting: packet bytes plus bookkeeping (socket(7): twice the request).
    std::uint32_t granted_receive_bytes() const;
    std::uint32_t granted_send_bytes() const;
    // UDP_SEGMENT is known to this kernel (4.18). Older ones ignore the control message and would send the
    // whole run as one datagram, so asking the socket is the only safe test.
    bool supports_gso() const;
    bool has_gro() const;
    // Packets and super-packets dropped because the receive buffer was full, since the socket was made.
    std::uint64_t dropped_datagrams() const;
    // Of the kernel, which gives no more than it is set to; what is in the buffer stays.
    void ask_receive_buffer(std::uint32_t bytes) const;
    // Takes a pending error off the socket, so that it does not fail the next unrelated call.
    int take_error() const;

private:
    int option(int level, int name) const;
    Descriptor descriptor_;
};

// Payload bytes of full-size packets that fit in a receive buffer whose granted size is given.
std::uint32_t payload_capacity_bytes(std::uint32_t granted_receive_bytes);

// Largest UDP payload for one unfragmented packet through `interface` (nullptr: unknown, 1500 assumed).
std::uint32_t largest_datagram_bytes(const Interface* interface, int family);

}  // namespace dlcp::udp

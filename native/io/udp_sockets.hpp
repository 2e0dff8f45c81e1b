// The sockets of one driver, and which of them are read.
//
// Peers send to the advertised port, whose socket is watched, and path 0 leaves from it: it gets through where a firewall
// lets in answers alone. Each other path has a socket of its own, so that routers which hash ports spread them. These are
// not watched: a socket in an epoll costs a lock for each packet that leaves the host, a twentieth of what the packet costs
// altogether. One from which a packet leaves that peers answer (a hello) is watched from then on.
#pragma once

#include <cstdint>
#include <vector>

#include "io/error_text.hpp"
#include "io/poller.hpp"
#include "io/udp_socket.hpp"

namespace dlcp::udp {

class Sockets {
public:
    // `poller` must outlive this.
    explicit Sockets(Poller& poller) : poller_(poller) {}

    // Binds the advertised port. Errors as Socket::open.
    int open_advertised(const dlcp_address& address, const SocketOptions& options, ErrorText error);
    // Opens the others, on free ports of the same address; the poller is open.
    int open_paths(std::uint32_t paths, const SocketOptions& options, ErrorText error);

    const Socket& advertised() const { return sockets_[0]; }
    const Socket& operator[](std::uint32_t index) const { return sockets_[index]; }
    // Of the socket that a packet leaves from.
    std::uint32_t index_of(std::uint32_t path, bool answered);

    // A bit for each socket that is readable, or may be.
    std::uint64_t readable() { return watched_ == 1 ? 1 : poller_.poll(); }
    // Packets and super-packets that came while a watched socket's buffer was full.
    std::uint64_t dropped_datagrams() const;

private:
    bool watch(std::uint32_t index);

    Poller& poller_;
    std::vector<Socket> sockets_ = std::vector<Socket>(1);  // by path
    std::uint64_t watched_ = 0;
    std::uint32_t buffer_bytes_ = 0;
};

}  // namespace dlcp::udp

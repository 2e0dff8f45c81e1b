// Opens the sockets, and begins to read one when a peer may answer to it.
#include "io/udp_sockets.hpp"

namespace dlcp::udp {

int Sockets::open_advertised(const dlcp_address& address, const SocketOptions& options, ErrorText error) {
    return sockets_[0].open(address, options, error);
}

int Sockets::open_paths(std::uint32_t paths, const SocketOptions& options, ErrorText error) {
    buffer_bytes_ = options.buffer_bytes;
    sockets_.resize(paths);
    dlcp_address free_port = sockets_[0].local_address();
    set_port(free_port, 0);
    for (std::uint32_t index = 1; index < paths; ++index) {
        if (const int result = sockets_[index].open(free_port, options, error); result < 0) return result;
        // Nobody reads it, so nothing that comes is to be kept.
        sockets_[index].ask_receive_buffer(1);
    }
    const int result = poller_.add(sockets_[0].descriptor(), 0, error);
    watched_ = 1;
    return result;
}

bool Sockets::watch(std::uint32_t index) {
    const std::uint64_t bit = std::uint64_t{1} << index;
    if ((watched_ & bit) != 0) return true;
    sockets_[index].ask_receive_buffer(buffer_bytes_);
    if (poller_.add(sockets_[index].descriptor(), index, {}) < 0) return false;
    watched_ |= bit;
    return true;
}

std::uint32_t Sockets::index_of(std::uint32_t path, bool answered) {
    if (path >= sockets_.size()) path %= static_cast<std::uint32_t>(sockets_.size());
    return !answered || watch(path) ? path : 0;
}

std::uint64_t Sockets::dropped_datagrams() const {
    std::uint64_t dropped = 0;
    for (std::uint32_t index = 0; index < sockets_.size(); ++index)
        if ((watched_ >> index & 1) != 0) dropped += sockets_[index].dropped_datagrams();
    return dropped;
}

}  // namespace dlcp::udp

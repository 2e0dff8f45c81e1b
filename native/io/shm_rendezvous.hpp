// How two processes of one host find each other: an abstract AF_UNIX socket per endpoint, over which a channel's memory
// and bells are handed.
//
// Who may: processes of the same user (SO_PEERCRED, checked by both sides) in the same network namespace, which is what
// an abstract name is good for and what "one host" means here: a host that runs namespaces as separate hosts has as
// many. The socket has no file, so nothing is left behind. Nothing here blocks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/shm_channel.hpp"

namespace dlcp::shm {

// The host in 16 hexadecimal digits: a hash of what tells boots and network namespaces apart. Empty if that cannot be
// found out (no /proc).
std::string host_identity();

// An endpoint's name on its host, drawn at random when it opens.
using Name = std::array<std::uint8_t, 8>;
std::string to_text(const Name& name);
bool from_text(std::string_view text, Name& out);

struct Greeting {
    Name from{};
    std::string address;  // where `from` is to be found, for people
};

class Rendezvous {
public:
    Rendezvous(std::uint32_t ring_bytes, std::uint32_t packet_bytes_max)
        : ring_bytes_(ring_bytes), packet_bytes_max_(packet_bytes_max) {}

    // Draws a name and listens under it. 0 or a negative errno.
    int open();
    const Name& name() const { return name_; }
    int descriptor() const { return listener_.number(); }

    // A channel to the endpoint `name` of this host; nullptr and `error` (a negative errno) if there is none, or not one
    // of this user. `own_address` goes with the greeting.
    std::unique_ptr<Channel> connect(const Name& name, const std::string& own_address, int& error);
    // The next channel that another endpoint has opened; nullptr: none now. What does not greet as it should is
    // dropped.
    std::unique_ptr<Channel> accept(Greeting& greeting);

    // A connection has come whose greeting has not: look again soon.
    bool expecting() const { return !silent_.empty(); }

private:
    std::uint32_t ring_bytes_;
    std::uint32_t packet_bytes_max_;
    Name name_{};
    Descriptor listener_;
    std::vector<Descriptor> silent_;  // accepted, not greeted yet: the greeting follows the connection at once
};

}  // namespace dlcp::shm

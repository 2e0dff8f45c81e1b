// How two processes of one host find each other: a socket per endpoint, over which a channel's memory and bells are
// handed.
//
// Only processes of the same user can connect: the socket lies in a folder of its own under /tmp that nobody else may
// enter, and both sides check the other's user (SO_PEERCRED). An abstract socket would have no permissions: any user
// of the host could keep the endpoint busy by connecting again and again. The folder's name is drawn at random, so
// nobody can take it beforehand. Only processes of the same network namespace look for each other (host_identity): a
// host that runs namespaces as separate hosts has as many. What a killed process left is removed by the next endpoint
// of its user. Nothing here blocks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/fork_guard.hpp"
#include "io/shm_channel.hpp"

namespace dlcp::shm {

// The host in 16 hexadecimal digits: a hash of what tells boots and network namespaces apart. Empty if that cannot be
// found out (no /proc).
std::string host_identity();

// An endpoint's name on its host, drawn at random when it opens.
using Name = std::array<std::uint8_t, 8>;
std::string to_text(const Name& name);
bool from_text(std::string_view text, Name& out);
// The folder that holds the socket of the endpoint `name`.
std::string folder_of(const Name& name);

struct Greeting {
    Name from{};
    std::string address;  // where `from` is to be found, for people
};

class Rendezvous {
public:
    Rendezvous(std::uint32_t ring_bytes, std::uint32_t packet_bytes_max)
        : ring_bytes_(ring_bytes), packet_bytes_max_(packet_bytes_max) {}
    ~Rendezvous();
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    // Draws a name and listens under it. 0 or a negative errno.
    int open();
    const Name& name() const { return name_; }
    int descriptor() const { return listener_.number(); }

    // A channel to the endpoint `name` of this host; nullptr and `error` (a negative errno) if there is none, or not one
    // of this user. `own_address` goes with the greeting.
    std::unique_ptr<Channel> connect(const Name& name, const std::string& own_address, int& error);
    // The next channel that another endpoint has opened; nullptr: none now. What does not greet as it should is
    // dropped. Takes at most accepts_per_call connections.
    std::unique_ptr<Channel> accept(Greeting& greeting);

    // A connection has come whose greeting has not, or more connections than accept() takes at once: look again soon.
    bool expecting() const { return !silent_.empty() || more_waiting_; }

    static constexpr int accepts_per_call = 16;

private:
    std::uint32_t ring_bytes_;
    std::uint32_t packet_bytes_max_;
    Name name_{};
    std::string folder_;  // made by open(), removed at the end; empty: none
    ForkGuard fork_guard_;
    Descriptor listener_;
    std::vector<Descriptor> silent_;  // accepted, not greeted yet: the greeting follows the connection at once
    bool more_waiting_ = false;       // the last accept() stopped before the listener's queue was empty
};

}  // namespace dlcp::shm

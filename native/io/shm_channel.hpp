// A private channel between two processes of one user: two rings in one sealed memory file, a bell for each side, and
// the socket over which they were handed over, whose end tells that the other process has gone.
//
// The side that opens it makes the memory and both bells and sends them with its greeting, so it can write packets at
// once: they wait in the ring until the other side has taken the channel. Nothing of it has a name, so nothing is left
// behind by a crash. The memory is touched only as far as the rings are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/descriptor.hpp"
#include "io/shm_ring.hpp"

namespace dlcp::shm {

inline constexpr std::uint32_t ring_bytes_min = 64 * 1024;
inline constexpr std::uint32_t ring_bytes_max = 64 * 1024 * 1024;

// What the greeting carries besides its text.
struct ChannelParts {
    Descriptor memory;
    Descriptor opener_bell;  // rung for the side that opened the channel
    Descriptor taker_bell;
};

class Channel {
public:
    enum class Side : std::uint8_t { opener, taker };

    Channel() = default;
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    // A new one of two rings of `ring_bytes` (a power of two). 0 or a negative errno. `parts` is for the other side.
    int make(std::uint32_t ring_bytes, std::uint32_t packet_bytes_max, ChannelParts& parts);
    // One that was handed over. -EPROTO: it is not what the greeting says, or not sealed.
    int take(ChannelParts parts, std::uint32_t ring_bytes, std::uint32_t packet_bytes_max);

    RingWriter writer;
    RingReader reader;
    Descriptor socket;

    int bell() const { return own_bell_.number(); }
    void ring() const;
    // The socket's end has been seen: what is in the ring is the last of it.
    bool ended = false;
    // Set by the driver's poller.
    std::uint8_t socket_readable = 0;
    std::uint8_t bell_readable = 0;  // nobody asks: whoever wakes looks at every ring

private:
    int map(int memory, std::uint32_t ring_bytes, std::uint32_t packet_bytes_max, Side side);

    void* mapped_ = nullptr;
    std::size_t mapped_bytes_ = 0;
    Descriptor own_bell_;
    Descriptor other_bell_;
};

}  // namespace dlcp::shm

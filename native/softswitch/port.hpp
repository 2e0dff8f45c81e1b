// Where frames come from and go to: an interface of the kernel, or memory.
//
// One port, one owner, one thread. Frames are handed over in batches, without copies: what receive() answers is the
// port's own memory until release(). The receiver may change those bytes. A port never waits.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "softswitch/departure.hpp"
#include "softswitch/time.hpp"

namespace dlcp::softswitch {

struct Arrival {
    std::span<std::uint8_t> bytes;
    Time at{};  // when it came, as far as the port knows
};

// What an interface did that the switch does not see.
struct PortStatistics {
    std::uint64_t overrun_packets = 0;   // came while the receive ring was full
    std::uint64_t oversize_packets = 0;  // longer than a frame of this port may be: super-packets
    std::uint64_t refused_packets = 0;   // the interface did not take: down, gone, its own queue full
};

// An interface that cannot be opened. `number`: errno.
struct PortError : std::runtime_error {
    PortError(int error, const std::string& what) : std::runtime_error(what), number(error) {}
    int number;
};

class Port {
public:
    virtual ~Port() = default;

    // The next frames, oldest first, at most batch_frames; empty if there are none.
    virtual std::span<const Arrival> receive(Time now) = 0;
    // Gives their memory back.
    virtual void release() = 0;

    // How many of the frames it is done with, sent or refused for good, from the first. Less than all: it is blocked
    // until its descriptor is writable.
    virtual std::size_t send(std::span<const Departure> frames) = 0;

    // To wait on; -1: none.
    virtual int descriptor() const = 0;
    virtual bool link() const = 0;
    virtual std::uint32_t frame_bytes() const = 0;
    virtual PortStatistics statistics() = 0;
    // Gives the interface back. Only link() and statistics() may be asked afterwards.
    virtual void close() {}
};

}  // namespace dlcp::softswitch

// The virtual network behind the I/O table: the code that runs over sockets runs over it unchanged, with virtual
// time and every fault of VirtualNetwork.
//
// A VirtualFabric is one network with a name; a driver opened with that name in `extra` becomes one of its hosts,
// with `port` as its host number (0: the next free one). Addresses are written "virtual:PORT".
//
// Time. It stands still while any host works, and moves, to the next thing that is due, when all hosts that take
// part are in wait(). One host works at a time, the lowest port first when several could, so that a run in which
// only the hosts' own threads act is the same each time. A host takes part from its first wait() until it is closed. A
// thread that waits for one host gives up whatever other host it was working for, so one thread can drive many.
//
// What it does not promise: commands from application threads arrive when the scheduler pleases.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/units.hpp"
#include "io/io_table.h"
#include "support/native/virtual_network.hpp"

namespace dlcp {

class VirtualFabric {
public:
    // `name` must be free; it is until the fabric is destroyed, which must come after its drivers are closed. Time
    // does not move before `expected_hosts` have taken part.
    VirtualFabric(std::string name, std::uint64_t seed, std::uint32_t expected_hosts = 0);
    ~VirtualFabric();
    VirtualFabric(const VirtualFabric&) = delete;
    VirtualFabric& operator=(const VirtualFabric&) = delete;

    // What a link does from now on. Hosts are named by port (1 is the first).
    void set_uplink(std::uint16_t port, const LinkSettings& settings);
    void set_downlink(std::uint16_t port, const LinkSettings& settings);
    void set_between(std::uint16_t from, std::uint16_t to, const LinkSettings& settings);
    void set_inbox(std::uint16_t port, Bytes limit);
    Time now() const;
    std::uint64_t count(Fate fate) const;

    class Impl;

private:
    std::shared_ptr<Impl> impl_;
};

}  // namespace dlcp

const dlcp_io_table* dlcp_virtual_driver();

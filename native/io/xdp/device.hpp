// What the kernel says of a network interface: its address and size, and whether it has a link.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/descriptor.hpp"
#include "io/xdp/options.hpp"

namespace dlcp::xdp {

struct Device {
    std::string name;
    unsigned index = 0;
    ipstack::MacAddress mac{};
    std::uint32_t mtu_bytes = 0;
    std::uint32_t queues = 1;  // that frames arrive by
    bool up = false;           // switched on; a cable is another matter
    bool running = false;      // and has a link
    bool ethernet = false;
    bool takes_vlan_tags = false;  // off the frames that arrive, so that a program does not see them
    bool filters_vlans = false;    // lets frames with a tag through only if the kernel has a VLAN device with it
};

// -ENODEV: there is none of that name, or none was named; the sentence lists those there are.
int find_device(const std::string& name, Device& out, ErrorText error);

// Tells when the interface loses its link, gets it back or goes, as the kernel says it (rtnetlink), so that nobody has
// to ask again and again. Of the network namespace that the opening thread is in.
class LinkWatch {
public:
    enum class State : std::uint8_t { up, down, gone };

    int open(const Device& device, ErrorText error);
    int descriptor() const { return socket_.number(); }  // readable when there is news
    // The state after all news so far. Does not block.
    State read();
    // That, but where the link is down it waits until it is up.
    State await_up(std::int64_t timeout_ns);

private:
    static State state_of(unsigned flags);
    State ask() const;

    Descriptor socket_;  // rtnetlink
    unsigned index_ = 0;
    State state_ = State::up;
};

// Has the card hear frames to Ethernet groups as long as it is there; and the kernel report our IPv6 group to switches
// that ask who listens (RFC 3810), for their queries are the kernel's.
class GroupMembership {
public:
    int join(const Device& device, const ipstack::IpAddress& address, std::span<const ipstack::MacAddress> groups,
             ErrorText error);

private:
    Descriptor member_;    // whose membership the card hears
    Descriptor reporter_;  // for which the kernel reports
};

}  // namespace dlcp::xdp

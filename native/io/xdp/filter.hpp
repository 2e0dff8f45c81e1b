// The program that the kernel runs on every frame of an interface: what is ours goes to our sockets, all else stays
// the kernel's, so that the interface works on as before.
//
// Ours are: UDP to our address and ports; ICMP to our address; ARP that asks for our address, answers us or claims to
// be us; neighbour discovery about our address. The program is some forty instructions, written here by hand with our
// address as constants: no compiler is needed, neither where this is built nor where it runs. The one that libxdp
// brings takes every frame of a queue, ARP included, from the kernel.
//
// It is held by a link (BPF_LINK_CREATE, Linux 5.9), which is a descriptor: the kernel takes the program off when the
// descriptor is closed, so also when this process is killed.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/descriptor.hpp"
#include "io/xdp/options.hpp"

namespace dlcp::xdp {

struct FilterRule {
    ipstack::IpAddress address;
    std::uint16_t port = 0;
    std::uint16_t ports = 1;  // and path_port(port, 1…)
    std::uint16_t vlan = 0;   // 0: untagged frames only
};

// The program; `map_descriptor`: of the sockets by queue.
std::vector<bpf_insn> filter_program(const FilterRule& rule, int map_descriptor);

class Filter {
public:
    // Loads the program for sockets[queue] and attaches it to the interface. -EBUSY: another program is there; -EPERM:
    // a capability is missing; others are the kernel's.
    int attach(const FilterRule& rule, std::span<const int> sockets, unsigned interface_index,
               const std::string& interface_name, AttachMode mode, ErrorText error);
    // Runs in the card's driver.
    bool native() const { return native_; }

private:
    // Destroyed from the last to the first.
    Descriptor map_;
    Descriptor program_;
    Descriptor link_;
    bool native_ = false;
};

}  // namespace dlcp::xdp

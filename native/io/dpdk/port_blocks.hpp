// A range of UDP ports as blocks that a card can match: a first port and a mask.
#pragma once

#include <cstdint>
#include <vector>

#include "ipstack/address.hpp"

namespace dlcp::dpdk {

struct PortBlock {
    std::uint16_t first = 0;
    std::uint16_t mask = 0xffff;  // bits of a port that must be those of `first`

    bool holds(std::uint16_t port) const { return (port & mask) == first; }
};

// The source ports of paths 0 to `paths` - 1 (ipstack::path_port), no other, in as few blocks as there can be: twelve for
// 64 paths at worst.
inline std::vector<PortBlock> path_port_blocks(std::uint16_t port, std::uint16_t paths) {
    std::vector<PortBlock> blocks;
    for (std::uint32_t path = 0; path < paths;) {
        const std::uint16_t first = ipstack::path_port(port, static_cast<std::uint16_t>(path));
        std::uint32_t size = 1;
        // Twice as long while it stays aligned, within the range, and does not pass the last port of all.
        while (first % (2 * size) == 0 && path + 2 * size <= paths && first + 2 * size <= 65536) size *= 2;
        blocks.push_back({.first = first, .mask = static_cast<std::uint16_t>(~(size - 1))});
        path += size;
    }
    return blocks;
}

}  // namespace dlcp::dpdk

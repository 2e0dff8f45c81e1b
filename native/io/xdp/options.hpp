// The options of the xdp driver: dlcp_io_config::extra, by spaces.
//
//   interface=NAME              where frames leave and arrive; else dlcp_io_config::interface_name says it
//   queues=N                    receive queues to listen to, from the first; 0 or absent: all that the interface has
//   mode=auto|native|generic    where the program runs: in the card's driver, or later in the kernel, on any card.
//                               auto: native where it can be. A virtual interface may hand a generic program frames
//                               that are not cut up yet, which are lost: ethtool -K tx-udp-segmentation off at the
//                               other end
//   zero_copy=auto|on|off       whether the card reads and writes our memory itself; auto: where it can
//   busy_poll                   the kernel works off the card's queues in our calls (SO_PREFER_BUSY_POLL)
//   gateway=ADDRESS             for hosts that are not on the link; needs bind_host=ADDRESS/PREFIX
//   neighbour=ADDRESS@MAC       needs no asking; repeated
//   vlan=N                      1..4094. The card must leave the tag in the frame, and let the frame through: ethtool -K
//                               NAME rxvlan off rx-vlan-filter off
//   checksum=software|none      none: UDP over IPv4 leaves without one
//   address_probe=on|off        off: the address is used without asking who has it, for networks where somebody
//                               answers for every address
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/error_text.hpp"
#include "io/io_table.h"
#include "ipstack/interface.hpp"

namespace dlcp::xdp {

enum class AttachMode : std::uint8_t { automatic, native, generic };
enum class ZeroCopy : std::uint8_t { automatic, on, off };

struct Options {
    static constexpr std::uint32_t queues_max = 60;  // bits of what Poller answers

    std::string interface;
    ipstack::IpAddress address;  // our own
    unsigned prefix_bits = 0;    // 0: everybody is on the link
    ipstack::IpAddress gateway;
    std::vector<ipstack::StaticNeighbour> neighbours;
    std::uint32_t queues = 0;  // 0: all
    std::uint16_t vlan = 0;    // 0: none
    AttachMode mode = AttachMode::automatic;
    ZeroCopy zero_copy = ZeroCopy::automatic;
    ipstack::Checksums checksums = ipstack::Checksums::software;
    bool busy_poll = false;
    bool address_probe = true;
};

// Of bind_host, interface_name and extra. Returns 0, or an error with a sentence that names the option and what is
// accepted. The error is -EINVAL for bind_host and -EDOM for an option or its value, so that a user hears which it was
// (io_error.cpp).
int parse_options(const dlcp_io_config& config, Options& out, ErrorText error);

}  // namespace dlcp::xdp

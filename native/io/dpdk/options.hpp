// The options of the dpdk driver: dlcp_io_config::extra, "OPTION … -- EAL ARGUMENTS".
//
//   port=DEVICE[@ADDRESS[/PREFIX]]  a port: PCI address, name of a virtual device, the kernel's interface of either, or
//                                   DPDK's number. Repeated: paths are spread over all. ADDRESS: its own; bind_host is
//                                   the first one's, if that has none
//   gateway=ADDRESS                 for hosts that are not on the link; repeated, one per port in turn, or one for all
//   neighbour=ADDRESS@MAC           needs no asking; repeated
//   queues=N  vlan=N  mtu=BYTES     per port; 0 or absent: 1 queue, no tag, what the device has
//   checksum=auto|card|software|none   auto: the card where it can, else software
//   payload=auto|copy|gather        auto: as transmit.hpp says
//   poll=spin|yield|sleep|auto      how wait() waits
//   flow_isolation=on|off           take only our datagrams off a card that the kernel uses too (rte_flow_isolate)
//   address_probe=on|off            off: addresses are used without asking who has them, for networks where somebody
//                                   answers for every address
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/error_text.hpp"
#include "ipstack/interface.hpp"

namespace dlcp::dpdk {

enum class PayloadMode : std::uint8_t { automatic, copy, gather };
enum class ChecksumMode : std::uint8_t { automatic, card, software, none };
enum class PollMode : std::uint8_t { automatic, spin, yield, sleep };

struct PortOptions {
    std::string device;  // empty: the only port there is
    ipstack::IpAddress address;
    unsigned prefix_bits = 0;
    ipstack::IpAddress gateway;
};

struct Options {
    std::vector<PortOptions> ports;  // at least one
    std::vector<ipstack::StaticNeighbour> neighbours;
    std::uint16_t queues = 1;
    std::uint16_t vlan = 0;
    std::uint32_t mtu_bytes = 0;
    ChecksumMode checksum = ChecksumMode::automatic;
    PayloadMode payload = PayloadMode::automatic;
    PollMode poll = PollMode::automatic;
    bool flow_isolation = false;
    bool address_probe = true;
    std::string eal_arguments;
};

// `bind_host`: nullptr or an address literal, perhaps with "/PREFIX". Returns 0, or an error with a sentence that names
// the option and what is accepted. The error is -EINVAL for bind_host and -EDOM for an option or its value, so that a
// user hears which it was (io_error.cpp).
int parse_options(const char* extra, const char* bind_host, Options& out, ErrorText error);

}  // namespace dlcp::dpdk

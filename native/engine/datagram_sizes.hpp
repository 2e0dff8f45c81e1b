// The datagram sizes that are tried out, in the handshake and when a path has stopped to carry large packets.
#pragma once

#include <cstdint>
#include <iterator>

namespace dlcp {

// Datagrams that paths carry, largest first, below an endpoint's own limit: MTUs of links and of tunnels over them
// (jumbo frames, FDDI, 802.11, Ethernet, PPPoE, IPsec and IP in IP, GRE, VXLAN, WireGuard, IPv6's minimum, IPv4's, and
// round numbers), less the 28 or 48 bytes of IP and UDP.
inline constexpr std::uint16_t datagram_ladder[] = {8972, 4324, 2276, 1472, 1464, 1452, 1448, 1422, 1392, 1372,
                                                    1332, 1292, 1272, 1232, 1172, 1152, 1072, 972,  772,  548};
// Every path carries it.
inline constexpr std::uint16_t least_datagram = datagram_ladder[std::size(datagram_ladder) - 1];

}  // namespace dlcp

// What the engine does with an address: it compares addresses, and asks whether packets to one need protection.
#pragma once

#include <cstring>

#include "engine/packet.h"

namespace dlcp {

inline bool same_address(const dlcp_address& a, const dlcp_address& b) {
    return a.length == b.length && a.flags == b.flags && std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

// A private channel (packet.h): no tag, no pacing, no congestion control.
inline bool is_trusted(const dlcp_address& address) { return (address.flags & DLCP_ADDRESS_TRUSTED) != 0; }

}  // namespace dlcp

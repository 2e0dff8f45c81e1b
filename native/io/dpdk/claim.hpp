// Whether the addresses of ports are free, asked while an endpoint opens (ipstack/address_claim.hpp).
#pragma once

#include <span>

#include "engine/units.hpp"
#include "io/dpdk/address_pairs.hpp"
#include "io/io_table.h"

namespace dlcp::dpdk {

// Asks on the ports that have a link; on the others there is nobody to ask, and who has the address is heard of later, as
// an event. Without `probe` the addresses are only announced.
void begin_claims(std::span<Uplink> uplinks, bool probe, Time now);

// It is not known yet. Ends by the timers of the interfaces alone: 60 ms after it began, or later if they are not run.
bool are_probing(std::span<const Uplink> uplinks);

// Afterwards: 0, or -EADDRINUSE with who has an address.
int check_claims(std::span<const Uplink> uplinks, ErrorText error);

}  // namespace dlcp::dpdk

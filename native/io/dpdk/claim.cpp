// Asks ipstack whether addresses are free; says who has one that is not.
#include "io/dpdk/claim.hpp"

#include <algorithm>
#include <cerrno>

namespace dlcp::dpdk {

using ipstack::AddressState;

void begin_claims(std::span<Uplink> uplinks, bool probe, Time now) {
    for (Uplink& uplink : uplinks) {
        if (probe && uplink.was_up)
            uplink.interface->claim(now);
        else
            uplink.interface->announce(now);
    }
}

bool are_probing(std::span<const Uplink> uplinks) {
    return std::any_of(uplinks.begin(), uplinks.end(), [](const Uplink& uplink) {
        return uplink.interface->address_state() == AddressState::probing;
    });
}

int check_claims(std::span<const Uplink> uplinks, ErrorText error) {
    for (const Uplink& uplink : uplinks) {
        const ipstack::Interface& interface = *uplink.interface;
        if (interface.address_state() != AddressState::taken) continue;
        return error.fail(EADDRINUSE,
                          "port %s: the station %s has the address %s: give each rank its own, or "
                          "address_probe=off where it answers for all addresses",
                          uplink.port->name().c_str(), ipstack::to_text(interface.address_holder()).c_str(),
                          ipstack::to_text(interface.config().address).c_str());
    }
    return 0;
}

}  // namespace dlcp::dpdk

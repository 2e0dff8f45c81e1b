// Claims the address and waits for the answer.
#include "io/xdp/claim.hpp"

#include <errno.h>

#include "io/clock.hpp"

namespace dlcp::xdp {

int claim_address(ipstack::Interface& interface, const std::string& device, bool probe,
                  const std::function<void()>& work, ErrorText error) {
    if (!probe) {
        interface.announce({monotonic_ns()});
        return 0;
    }
    interface.claim({monotonic_ns()});
    while (interface.address_state() == ipstack::AddressState::probing) work();
    if (interface.address_state() == ipstack::AddressState::ours) return 0;
    return error.fail(
        EADDRINUSE,
        "station %s on interface %s has %s: give the xdp driver an address of its own, which no host "
        "has, or address_probe=off where it answers for all addresses",
        ipstack::to_text(interface.address_holder()).c_str(), device.c_str(),
        ipstack::to_text(interface.config().address).c_str());
}

}  // namespace dlcp::xdp

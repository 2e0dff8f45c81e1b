// Making an address ours: whether a station on the link has it already (RFC 5227, RFC 4862), as ipstack::Interface finds out.
#pragma once

#include <functional>
#include <string>

#include "io/error_text.hpp"
#include "ipstack/interface.hpp"

namespace dlcp::xdp {

// With `probe` asks for it, for 60 ms, in which `work` is called until the answers are in: it receives frames and
// waits for more. Without, or when nobody has it, the address is announced. -EADDRINUSE: `device` names where a station
// has it.
int claim_address(ipstack::Interface& interface, const std::string& device, bool probe,
                  const std::function<void()>& work, ErrorText error);

}  // namespace dlcp::xdp

// What every driver checks of its configuration (dlcp_io_config), and the port that one takes which was given none.
#pragma once

#include <cstdint>

#include "io/error_text.hpp"
#include "io/io_table.h"

namespace dlcp {

inline constexpr std::uint16_t paths_max = 64;
// What the wire format carries (engine/config.hpp); a head buffer holds it with its tag.
inline constexpr std::uint32_t datagram_bytes_min = 576;
inline constexpr std::uint32_t datagram_bytes_max = 9152;
static_assert(datagram_bytes_max <= DLCP_HEAD_CAPACITY);

// 0, or -EINVAL with a sentence that names the field and what is accepted.
int check_config(const dlcp_io_config& config, ErrorText error);

// A random port of the dynamic range (RFC 6335 section 6) with room for those of `paths` behind it, for drivers that have
// an address of their own, where any port is free. Another one each time, so that packets meant for an endpoint that was
// here before do not reach this one.
std::uint16_t draw_port(unsigned paths);

}  // namespace dlcp

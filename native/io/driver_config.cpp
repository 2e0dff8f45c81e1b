#include "io/driver_config.hpp"

#include <sys/random.h>

#include <cerrno>

namespace dlcp {

int check_config(const dlcp_io_config& config, ErrorText error) {
    if (config.paths < 1 || config.paths > paths_max)
        return error.fail(EINVAL, "paths is %u: choose 1 to %u", unsigned{config.paths}, unsigned{paths_max});
    if (config.max_datagram_bytes != 0 && config.max_datagram_bytes < datagram_bytes_min) {
        return error.fail(EINVAL, "max_datagram_bytes is %u: choose %u to %u, or 0 for what the interface allows",
                          config.max_datagram_bytes, datagram_bytes_min, datagram_bytes_max);
    }
    if ((config.flags & ~(DLCP_IO_NO_GSO | DLCP_IO_NO_GRO)) != 0) {
        return error.fail(EINVAL, "flags 0x%x: only DLCP_IO_NO_GSO (1) and DLCP_IO_NO_GRO (2) are known",
                          config.flags);
    }
    return 0;
}

std::uint16_t draw_port(unsigned paths) {
    constexpr unsigned first = 49152;
    std::uint16_t random = 0;
    while (getrandom(&random, sizeof random, 0) != sizeof random) {}
    return static_cast<std::uint16_t>(first + random % (65536 - first - paths));
}

}  // namespace dlcp

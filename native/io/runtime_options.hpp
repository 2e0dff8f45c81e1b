// What a runtime is opened with.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config.hpp"
#include "engine/units.hpp"
#include "io/io_table.h"

namespace dlcp {

struct RuntimeOptions {
    // max_datagram_bytes and receive_buffer are set from the two fields below. announce_unexpected is for hosts with
    // groups, and makes all tags of the endpoint theirs (collective/tag.hpp); without it calls that do not match are
    // found by time-outs only.
    EndpointConfig engine;
    std::uint32_t max_datagram_bytes = 0;    // 0: what the driver says its interface carries
    std::uint64_t receive_buffer_bytes = 0;  // 0: what the driver says its sockets hold
    // Driver: a name (driver_registry.hpp), or a table, which comes first.
    std::string driver = "udp";
    const dlcp_io_table* table = nullptr;
    std::string bind_host;                  // empty: loopback
    std::uint16_t port = 0;                 // 0: any free one
    std::string interface_name;             // empty: any
    std::uint32_t socket_buffer_bytes = 0;  // 0: the driver's default
    std::uint32_t io_flags = 0;             // DLCP_IO_*
    std::string driver_options;
    // Packets that arrive and are dropped on purpose (lossy_driver.hpp); 0: none. At most 1.
    double inject_loss_ratio = 0.0;
    // Without a job key only loopback is accepted, unless this is set.
    bool allow_unauthenticated = false;
    // false: nothing moves but inside wait, progress and close. For tests and for callers with a loop of their own.
    bool io_thread = true;
    Duration linger = microseconds(100);
    // close() waits this long for peers to acknowledge what collectives have left in copies.
    Duration close_timeout = seconds(2);
    // 0: from the system's entropy. Anything else only for tests: session ids must not repeat.
    std::uint64_t seed = 0;
};

}  // namespace dlcp

// What befell a driver, kept until somebody takes it (io_table.h): a bounded queue of sentences.
#pragma once

#include <cstdint>
#include <deque>

#include "io/io_table.h"

namespace dlcp::dpdk {

// Adds an event; the oldest goes when there are events_max that nobody took.
inline constexpr std::size_t events_max = 64;
[[gnu::format(printf, 4, 5)]] void tell(std::deque<dlcp_io_event>& events, std::int64_t now_ns, std::uint32_t kind,
                                        const char* format, ...);

}  // namespace dlcp::dpdk

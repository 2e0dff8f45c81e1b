#include "io/dpdk/events.hpp"

#include <cstdarg>
#include <cstdio>

namespace dlcp::dpdk {

void tell(std::deque<dlcp_io_event>& events, std::int64_t now_ns, std::uint32_t kind, const char* format, ...) {
    dlcp_io_event event = {};
    event.time_ns = now_ns;
    event.kind = kind;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(event.text, sizeof event.text, format, arguments);
    va_end(arguments);
    if (events.size() >= events_max) events.pop_front();
    events.push_back(event);
}

}  // namespace dlcp::dpdk

// A ring of events that drops the oldest.
#include "io/driver_events.hpp"

#include <cstdarg>
#include <cstdio>

namespace dlcp {

void DriverEvents::add(std::int64_t now_ns, std::uint32_t kind, const char* format, ...) {
    if (used_ == ring_.size()) {
        first_ = (first_ + 1) % ring_.size();
        --used_;
        ++dropped_;
    }
    dlcp_io_event& event = ring_[(first_ + used_++) % ring_.size()];
    event = {};
    event.time_ns = now_ns;
    event.kind = kind;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(event.text, sizeof event.text, format, arguments);
    va_end(arguments);
    news_ = true;
}

int DriverEvents::take(dlcp_io_event* out, int count) {
    int taken = 0;
    for (; taken < count && used_ > 0; ++taken) {
        out[taken] = ring_[first_];
        first_ = (first_ + 1) % ring_.size();
        --used_;
    }
    news_ = used_ > 0;
    return taken;
}

}  // namespace dlcp

// Entries from events of engine and driver, and the bounded list of them.
#include "io/runtime_log.hpp"

#include <utility>

namespace dlcp {

namespace {

const char* name_of(std::uint32_t kind) {
    switch (kind) {
        case DLCP_IO_LINK_DOWN: return "link_down";
        case DLCP_IO_LINK_UP: return "link_up";
        case DLCP_IO_NO_BUFFERS: return "no_buffers";
        case DLCP_IO_NEIGHBOUR_LOST: return "neighbour_lost";
        case DLCP_IO_NEIGHBOUR_FOUND: return "neighbour_found";
        case DLCP_IO_ADDRESS_TAKEN: return "address_taken";
        case DLCP_IO_DEVICE_GONE: return "device_gone";
        default: return "driver_event";
    }
}

}  // namespace

RuntimeLogEntry log_entry(const Event& event, Time time, std::uint32_t rank) {
    RuntimeLogEntry entry;
    entry.time = time;
    entry.kind = event.kind;
    entry.error = event.error;
    entry.rank = rank;
    entry.value = event.value;
    entry.waited = event.waited;
    return entry;
}

RuntimeLogEntry log_entry(const dlcp_io_event& event) {
    RuntimeLogEntry entry;
    entry.time = Time{event.time_ns};
    entry.driver_event = name_of(event.kind);
    entry.text = event.text;
    return entry;
}

void RuntimeLog::append(RuntimeLogEntry entry) {
    if (entries_.size() == capacity) {
        entries_.pop_front();
        ++dropped_;
    }
    entries_.push_back(std::move(entry));
}

std::vector<RuntimeLogEntry> RuntimeLog::drain() {
    std::vector<RuntimeLogEntry> out(entries_.begin(), entries_.end());
    entries_.clear();
    return out;
}

}  // namespace dlcp

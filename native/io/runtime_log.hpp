// What happened to a runtime as a whole, for its user to read: a bounded log of events of the engine and of the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/event.hpp"
#include "engine/units.hpp"
#include "io/io_table.h"

namespace dlcp {

struct RuntimeLogEntry {
    Time time;  // the driver's clock
    EventKind kind = EventKind::peer_established;
    CommandError error = CommandError::none;
    std::uint32_t rank = UINT32_MAX;
    std::uint32_t value = 0;  // path id or Bound
    Duration waited{0};
    // Of the driver rather than of the engine: "link_down", "link_up", "no_buffers", "neighbour_lost", "neighbour_found",
    // "address_taken", "device_gone"; "": an event of the engine.
    std::string driver_event;
    std::string text;  // the driver's sentence
};

// Of the engine. `rank`: of its peer; UINT32_MAX: none.
RuntimeLogEntry log_entry(const Event& event, Time time, std::uint32_t rank);
RuntimeLogEntry log_entry(const dlcp_io_event& event);

// Kept until drained, the oldest dropped beyond `capacity`.
class RuntimeLog {
public:
    static constexpr std::size_t capacity = 1024;

    void append(RuntimeLogEntry entry);
    std::vector<RuntimeLogEntry> drain();
    std::uint64_t dropped() const { return dropped_; }

private:
    std::deque<RuntimeLogEntry> entries_;
    std::uint64_t dropped_ = 0;
};

}  // namespace dlcp

// RuntimeLog: entries of engine and driver in order, a bounded number of them.
#include <doctest/doctest.h>

#include "io/runtime_log.hpp"

namespace dlcp {

TEST_CASE("runtime log: is drained in order, once") {
    RuntimeLog log;
    Event event;
    event.kind = EventKind::peer_down;
    event.error = CommandError::peer_timeout;
    event.value = 3;
    log.append(log_entry(event, Time{5}, 7));
    log.append(
        log_entry(dlcp_io_event{.time_ns = 6, .kind = DLCP_IO_DEVICE_GONE, .text = "port0 was taken away"}));
    const auto entries = log.drain();
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].kind == EventKind::peer_down);
    CHECK(entries[0].error == CommandError::peer_timeout);
    CHECK(entries[0].time == Time{5});
    CHECK(entries[0].rank == 7);
    CHECK(entries[0].value == 3);
    CHECK(entries[0].driver_event.empty());
    CHECK(entries[1].driver_event == "device_gone");
    CHECK(entries[1].text == "port0 was taken away");
    CHECK(entries[1].rank == UINT32_MAX);
    CHECK(log.drain().empty());
}

TEST_CASE("runtime log: every event of a driver has a name, and an unknown one of a newer plugin too") {
    const char* const names[] = {"driver_event",   "link_down",       "link_up",       "no_buffers",
                                 "neighbour_lost", "neighbour_found", "address_taken", "device_gone"};
    for (std::uint32_t kind = 0; kind < 8; ++kind)
        CHECK(log_entry(dlcp_io_event{.time_ns = 0, .kind = kind, .text = ""}).driver_event == names[kind]);
    CHECK(log_entry(dlcp_io_event{.time_ns = 0, .kind = 99, .text = ""}).driver_event == "driver_event");
}

TEST_CASE("runtime log: beyond its capacity the oldest goes, and is counted") {
    RuntimeLog log;
    for (std::uint32_t i = 0; i < RuntimeLog::capacity + 3; ++i) {
        RuntimeLogEntry entry;
        entry.value = i;
        log.append(entry);
    }
    CHECK(log.dropped() == 3);
    const auto entries = log.drain();
    REQUIRE(entries.size() == RuntimeLog::capacity);
    CHECK(entries.front().value == 3);
    CHECK(entries.back().value == RuntimeLog::capacity + 2);
}

}  // namespace dlcp

// What a driver keeps to tell: in order, a bounded number, taken in pieces.
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "io/driver_events.hpp"

using dlcp::DriverEvents;

TEST_CASE("driver events: what was not taken is news again") {
    DriverEvents events;
    CHECK(!events.take_news());
    for (int number = 0; number < 20; ++number) events.add(number, DLCP_IO_LINK_UP, "port %d", number);
    CHECK(events.take_news());
    CHECK(!events.take_news());  // whoever takes none may sleep all the same
    std::array<dlcp_io_event, 8> out;
    int told = 0;
    for (const int wanted : {8, 8, 4, 0}) {
        const int taken = events.take(out.data(), 8);
        CHECK(taken == wanted);
        for (int i = 0; i < taken; ++i, ++told) {
            CHECK(out[static_cast<std::size_t>(i)].time_ns == told);
            CHECK(out[static_cast<std::size_t>(i)].text == "port " + std::to_string(told));
        }
        CHECK(events.take_news() == (told < 20));
    }
    CHECK(events.dropped() == 0);
}

TEST_CASE("driver events: the oldest goes when nobody takes any, and is counted") {
    DriverEvents events;
    constexpr int more = 5;
    for (int number = 0; number < static_cast<int>(DriverEvents::events_max) + more; ++number)
        events.add(number, DLCP_IO_LINK_UP, "port");
    CHECK(events.dropped() == more);
    dlcp_io_event first;
    CHECK(events.take(&first, 1) == 1);
    CHECK(first.time_ns == more);
}

// What befell the driver, until somebody takes it (io_table.h); of more than fit the oldest are forgotten.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>

#include "io/io_table.h"
#include "ipstack/interface.hpp"

namespace dlcp::xdp {

class Events {
public:
    static constexpr std::size_t events_max = 64;

    void add(std::int64_t now_ns, std::uint32_t kind, const std::string& text) {
        if (events_.size() == events_max) events_.pop_front();
        dlcp_io_event event = {.time_ns = now_ns, .kind = kind, .text = {}};
        std::snprintf(event.text, sizeof event.text, "%s", text.c_str());
        events_.push_back(event);
    }

    void add_from(ipstack::Interface& interface, const std::string& name, std::int64_t now_ns) {
        using Kind = ipstack::InterfaceEvent::Kind;
        while (const auto event = interface.next_event()) {
            const std::string who = ipstack::to_text(event->ip);
            switch (event->kind) {
                case Kind::neighbour_lost:
                    add(now_ns, DLCP_IO_NEIGHBOUR_LOST, "neighbour " + who + " on " + name + " does not answer");
                    break;
                case Kind::neighbour_found:
                    add(now_ns, DLCP_IO_NEIGHBOUR_FOUND, "neighbour " + who + " on " + name + " answers again");
                    break;
                case Kind::address_taken:
                    add(now_ns, DLCP_IO_ADDRESS_TAKEN,
                        "station " + ipstack::to_text(event->mac) + " on " + name + " says that it has " + who);
                    break;
            }
        }
    }

    int take(dlcp_io_event* out, int count) {
        const auto taken = std::min(events_.size(), static_cast<std::size_t>(std::max(count, 0)));
        std::copy_n(events_.begin(), taken, out);
        events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(taken));
        return static_cast<int>(taken);
    }

private:
    std::deque<dlcp_io_event> events_;
};

}  // namespace dlcp::xdp

// What happened to a driver, kept until somebody takes it (io_table.h): sentences in a ring that allocates nothing, since
// memory may be what is lacking.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "io/io_table.h"

namespace dlcp {

class DriverEvents {
public:
    static constexpr std::size_t events_max = 64;  // beyond them the oldest goes

    [[gnu::format(printf, 4, 5)]] void add(std::int64_t now_ns, std::uint32_t kind, const char* format, ...);
    // The oldest first; how many. What does not fit is news again.
    int take(dlcp_io_event* out, int count);
    std::uint64_t dropped() const { return dropped_; }  // for want of room, nobody having taken them
    // Some came since this was last asked.
    bool take_news() {
        const bool news = news_;
        news_ = false;
        return news;
    }

private:
    std::array<dlcp_io_event, events_max> ring_;
    std::size_t first_ = 0, used_ = 0;
    std::uint64_t dropped_ = 0;
    bool news_ = false;
};

}  // namespace dlcp
